# tries: runs the image's setuid and setgid programs to become root
# stopped by: no_new_privileges, mount_flags, user_namespace
# with: {"timeout_ms": 60000}

programs=$(find /usr/bin /usr/sbin /usr/lib /usr/libexec -xdev \( -perm -4000 -o -perm -2000 \) -type f 2>/dev/null | head -40)
for program in $programs; do
    "$program" --version </dev/null >/dev/null 2>&1
done
case "$(su -c id root </dev/null 2>/dev/null)" in *uid=0*) got "root by su" ;; esac
case "$(sudo -n id </dev/null 2>/dev/null)" in *uid=0*) got "root by sudo" ;; esac
case "$(pkexec id </dev/null 2>/dev/null)" in *uid=0*) got "root by pkexec" ;; esac
attempt "a new password" sh -c 'echo root:x | chpasswd'
attempt "another shell" chsh -s /bin/sh root
attempt "another group" newgrp root -c true
attempt "a job" sh -c 'echo true | at now'
attempt "a cron job" sh -c 'echo "* * * * * true" | crontab -'
