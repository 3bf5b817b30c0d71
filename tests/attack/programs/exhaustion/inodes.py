# tries: makes empty files without end
# stopped by: disk, cgroup
# ends: disk_limit, oom_killed, exited
# with: {"limits": {"disk_mb": 8, "memory_mb": 128}}

count = 0
try:
    for number in range(100000):
        os.close(os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY))
        count += 1
except OSError:
    pass
if count >= 90000:
    got(count, "files on a disk of 8 MiB")
