# tries: mounts with the calls that have replaced mount
# stopped by: seccomp, capabilities
# like: CVE-2022-0185

what = passes("fsopen", b"tmpfs", 0)
if what:
    got("fsopen", what)
what = passes("fspick", _ctypes.c_int(-100), b"/", 0)
if what:
    got("fspick", what)
if what := passes("fsmount", 0, 0, 0):
    got("fsmount", what)
