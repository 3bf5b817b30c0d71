# tries: locks much memory, so that the machine cannot take it back
# stopped by: rlimits

import mmap, resource
size = 32 << 20
memory = mmap.mmap(-1, size)
address = _ctypes.addressof(_ctypes.c_char.from_buffer(memory))
attempt("locked 32 MiB", lambda: syscall("mlock", _ctypes.c_void_p(address), size))
secret = None
try:
    secret = syscall("memfd_secret", 0)
    os.ftruncate(secret, size)
    _libc.mmap.restype = _ctypes.c_void_p
    at = _libc.mmap(None, _ctypes.c_size_t(size), 3, 1, secret, _ctypes.c_long(0))
    if at not in (None, 2**64 - 1):
        got("32 MiB that cannot be taken back")
except OSError:
    pass
attempt("huge pages that are reserved", lambda: mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)[0:1])
