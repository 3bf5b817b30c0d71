# tries: finds data of others in memory that it is given
# stopped by: environment
# like: CVE-2026-122192

import mmap
zeros = bytes(1 << 20)
for flags in (mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS):
    memory = mmap.mmap(-1, 32 << 20, flags=flags)
    for offset in range(0, 32 << 20, 1 << 20):
        if memory[offset:offset + (1 << 20)] != zeros:
            got("data in fresh memory at", offset)
            break
file = os.memfd_create("x")
os.ftruncate(file, 8 << 20)
if os.read(file, 8 << 20) != bytes(8 << 20):
    got("data in a fresh file of memory")
