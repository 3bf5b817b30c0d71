# tries: attaches shared memory of the host that is open to everybody
# stopped by: ipc_namespace
# needs: fact shm

try:
    _libc.shmat.restype = _ctypes.c_void_p
    address = _libc.shmat(FACTS.shm, None, 0)
    if address != 2**64 - 1:
        got("shared memory of the host")
        _libc.shmdt(_ctypes.c_void_p(address))
finally:
    pass
