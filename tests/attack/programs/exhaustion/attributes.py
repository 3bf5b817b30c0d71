# tries: keeps data in attributes of files, which no quota of bytes counts
# stopped by: cgroup, disk
# ends: oom_killed, exited, disk_limit
# with: {"limits": {"disk_mb": 8, "memory_mb": 96}}

total = 0
try:
    for number in range(5000):
        path = f"/tmp/{number}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        os.setxattr(path, "user.big", bytes(60000))
        total += 60000
except OSError:
    pass
if total > 110 << 20:
    got(total >> 20, "MiB in attributes where 96 are allowed")
