# tries: fills its disk by every folder that is writable
# stopped by: disk, cgroup
# ends: exited, disk_limit, oom_killed
# with: {"limits": {"disk_mb": 16, "memory_mb": 128}}

for folder in /data /tmp /var/tmp /home/sandbox; do
    head -c 12000000 /dev/zero > "$folder/big" 2>/dev/null
done
total=$(cat /data/big /tmp/big /var/tmp/big /home/sandbox/big 2>/dev/null | wc -c)
[ "$total" -gt 18000000 ] && got "$total bytes where 16 MiB are allowed"
echo DONE
