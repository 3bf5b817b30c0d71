# tries: turns numbers of the profiler into paths of the host
# stopped by: seccomp, user_namespace

if what := passes("lookup_dcookie", 1, _ctypes.create_string_buffer(64), 64):
    got("lookup_dcookie", what)
