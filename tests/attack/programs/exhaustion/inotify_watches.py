# tries: watches so many files that the kernel's memory for watches is used up
# stopped by: cgroup, own_uid
# holds: true
# with: {"limits": {"memory_mb": 128, "disk_mb": 64}}
# ends: oom_killed, exited

handle = syscall("inotify_init1", 0)
count = 0
try:
    for number in range(60000):
        path = f"/tmp/w{number}".encode()
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        syscall("inotify_add_watch", handle, path, 2)
        count += 1
except OSError as error:
    print(count, error.strerror, flush=True)
hold()
