# tries: loses the filter of system calls by exec, in threads and in children of children
# stopped by: seccomp

for program in env bash perl node; do
    command -v "$program" >/dev/null || continue
    case "$(env "$program" -c 'true' 2>/dev/null; bash -c 'exec env grep -h "^Seccomp:" /proc/self/status')" in
        *2) ;;
        *) got "no filter below $program" ;;
    esac
done
attempt "a user namespace from the shell" unshare -U true
attempt "another from a child" sh -c 'sh -c "exec unshare -r true"'
