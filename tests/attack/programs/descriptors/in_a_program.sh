# tries: finds more than its three pipes open in a program that is executed
# stopped by: descriptors

for fd in /proc/self/fd/*; do
    number=${fd##*/}
    [ "$number" -le 2 ] && continue
    target=$(readlink "$fd") || continue
    case "$target" in "/proc/"*) continue ;; *.sh | /tmp/* | /home/sandbox/*) continue ;; esac
    [ "$number" = 255 ] || got "$number $target"
done
echo DONE
