# tries: prepares another kernel to be run
# stopped by: seccomp, user_namespace

if what := passes("kexec_load", 0, 0, None, 0):
    got("kexec_load", what)
if what := passes("kexec_file_load", _ctypes.c_int(-1), _ctypes.c_int(-1), 0, None, 4):
    got("kexec_file_load", what)
