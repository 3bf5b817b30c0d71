# tries: takes the filter of system calls away, or puts one before it that answers otherwise
# stopped by: seccomp

class Instruction(_ctypes.Structure):
    _fields_ = [("code", _ctypes.c_uint16), ("jt", _ctypes.c_uint8), ("jf", _ctypes.c_uint8), ("k", _ctypes.c_uint32)]

class Program(_ctypes.Structure):
    _fields_ = [("length", _ctypes.c_uint16), ("filter", _ctypes.c_void_p)]

allow = (Instruction * 1)(Instruction(6, 0, 0, 0x7FFF0000))
program = Program(1, _ctypes.addressof(allow))
child = os.fork()
if child == 0:
    try:
        syscall("seccomp", 1, 0, _ctypes.byref(program))
    except OSError:
        pass
    # One more filter may be there; the strictest decides.
    for name in ("mount", "unshare", "ptrace"):
        arguments = (b"none", b"/tmp", b"tmpfs", 0, None) if name == "mount" else (0x10000000,) if name == "unshare" else (0, 0, 0, 0)
        if what := passes(name, *arguments):
            got(name, "after a filter of its own", what)
    os._exit(0)
os.waitpid(child, 0)
if syscall("prctl", 21, 0, 0, 0, 0) != 2:
    got("no filter in force")
