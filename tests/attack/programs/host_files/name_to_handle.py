# tries: learns the numbers by which files are opened past every mount
# stopped by: seccomp

handle, mount = (_ctypes.c_char * 256)(), _ctypes.c_int()
_ctypes.memmove(handle, (128).to_bytes(4, sys.byteorder), 4)
what = passes("name_to_handle_at", _ctypes.c_int(-100), b"/usr", handle, _ctypes.byref(mount), 0)
if what and "returned" in what:
    got("the handle of /usr", what)
