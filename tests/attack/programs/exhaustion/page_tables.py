# tries: has the kernel spend memory on tables of pages that are never used
# stopped by: cgroup
# ends: oom_killed, exited
# with: {"limits": {"memory_mb": 96}}

import mmap
# One page in every 2 MiB costs a table of 4 KiB besides the page that all share.
memory = mmap.mmap(-1, 160 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
touched = 0
for offset in range(0, 160 << 30, 2 << 20):
    memory[offset]
    touched += 1
tables = int(next(line for line in open("/proc/self/status") if line.startswith("VmPTE")).split()[1])
if tables > 120 << 10:
    got(tables >> 10, "MiB of tables where 96 are allowed")
