# tries: hides arguments from the filter in the half of a register that the kernel does not look at
# stopped by: seccomp

import socket
for family in (17, 38, 40):
    for kind in (3, 5):
        for dirt in (1 << 32, 1 << 63):
            try:
                fd = syscall(41 if X86 else 198, _ctypes.c_ulong(dirt | family), kind, 0)
                got("a socket of family", family)
            except OSError:
                pass
for dirt in (1 << 32, 1 << 62):
    try:
        child = syscall("clone", _ctypes.c_ulong(dirt | 0x10000000 | 17), None, None, None, None)
    except OSError:
        continue
    if child == 0:
        os._exit(0)
    got("a child in a new namespace")
