# tries: fills shared memory from many children, so that ending one of them gives nothing back and the kernel looks for memory for ever
# stopped by: cgroup
# with: {"limits": {"memory_mb": 96, "processes": 32}}
# ends: oom_killed

import mmap, time
shared = mmap.mmap(-1, 192 << 20)
for _ in range(12):
    if os.fork() == 0:
        for at in range(0, len(shared), 4096):
            shared[at] = 1
        os._exit(0)
time.sleep(15)
filled = sum(shared[at] for at in range(0, len(shared), 1 << 20))
if filled > 100:
    got(filled, "MiB where 96 are allowed")
