# tries: finds secrets of the service in a shell's environment, functions and history
# stopped by: environment

set | grep -a "fmhs-[0-9a-f]" | grep -av "^secrets=" | while read -r line; do got "$line"; done
env | grep -aE '^(FUMEHOOD|CANARY|NEIGHBOUR|AWS_|SSH_|GITHUB_)' | while read -r line; do got "$line"; done
tr '\0' '\n' < /proc/$$/environ | grep -aE 'fmhs-[0-9a-f]{32}|^(FUMEHOOD|CANARY)' | while read -r line; do got "$line"; done
[ -s ~/.bash_history ] && got "a history"
