# tries: takes the attributes from a mount that make it harmless
# stopped by: seccomp, capabilities

class Attributes(_ctypes.Structure):
    _fields_ = [(name, _ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]

for place in (b"/", b"/usr", b"/data", b"/proc/sys"):
    wanted = Attributes(0, 0xF, 0, 0)
    if what := passes("mount_setattr", _ctypes.c_int(-100), place, 0, _ctypes.byref(wanted), 32):
        got("mount_setattr", place, what)
