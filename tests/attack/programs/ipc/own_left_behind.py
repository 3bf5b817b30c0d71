# tries: leaves shared memory where another sandbox, or its successor, finds it
# stopped by: ipc_namespace

key = 0x666D0001
segment = _libc.shmget(key, 0, 0)
if segment >= 0:
    got("shared memory that another sandbox has left")
    _libc.shmctl(segment, 0, None)
else:
    _libc.shmget(key, 4096, 0o1666)
