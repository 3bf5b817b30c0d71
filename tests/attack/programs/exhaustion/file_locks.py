# tries: makes locks of bytes without end, memory of the kernel
# stopped by: cgroup
# ends: oom_killed, exited
# holds: true
# with: {"limits": {"memory_mb": 96}, "timeout_ms": 60000}

import fcntl, struct
count = 0
files = []
try:
    # Every other byte, so that none are joined; few for each file, for the kernel looks at all of them each time.
    for number in range(300):
        files.append(os.open(f"/tmp/locked{number}", os.O_CREAT | os.O_RDWR))
        for byte in range(0, 800, 2):
            fcntl.fcntl(files[-1], 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, byte, 1, 0))
            count += 1
except OSError:
    pass
print(count, flush=True)
hold()
