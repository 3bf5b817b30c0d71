# tries: attaches the shared memory of a neighbour by its key, and reads it
# stopped by: ipc_namespace

segment = _libc.shmget(FACTS.neighbour.key, 0, 0)
if segment >= 0:
    got("a segment", segment)
    _libc.shmat.restype = _ctypes.c_void_p
    address = _libc.shmat(segment, None, 0o10000)
    if address != 2**64 - 1:
        got("the neighbour's memory", secrets_in(_ctypes.string_at(address, 256)))
