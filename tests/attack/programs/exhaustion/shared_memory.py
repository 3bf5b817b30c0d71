# tries: keeps memory in segments of shared memory that belong to no process
# stopped by: cgroup
# ends: oom_killed, exited
# with: {"limits": {"memory_mb": 96}}

total = 0
_libc.shmat.restype = _ctypes.c_void_p
for number in range(200):
    segment = _libc.shmget(0, 1 << 20, 0o1600)
    if segment < 0:
        break
    address = _libc.shmat(segment, None, 0)
    # Where this works and a layer is missing, nothing is to stay on the host.
    _libc.shmctl(segment, 0, None)
    if address == 2**64 - 1:
        break
    _ctypes.memset(address, 1, 1 << 20)
    total += 1
if total > 110:
    got(total, "MiB where 96 are allowed")
