# tries: copies a tree of mounts with what lies under its covers, and attaches it
# stopped by: seccomp, capabilities

for place in (b"/", b"/proc", b"/usr", b"/dev"):
    # OPEN_TREE_CLONE | AT_RECURSIVE
    if what := passes("open_tree", _ctypes.c_int(-100), place, 0x8001):
        got("open_tree", place, what)
if what := passes("move_mount", _ctypes.c_int(-100), b"/tmp", _ctypes.c_int(-100), b"/data", 0):
    got("move_mount", what)
