# tries: enters the kernel by the gate for programs of 32 bits, whose numbers mean other calls
# stopped by: seccomp
# needs: x86_64
# ends: exited, signaled
# like: CVE-2009-0835

import mmap
child = os.fork()
if child == 0:
    # getpid by int 0x80
    code = mmap.mmap(-1, 4096, prot=7)
    code.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))
    answer = _ctypes.CFUNCTYPE(_ctypes.c_int)(_ctypes.addressof(_ctypes.c_char.from_buffer(code)))()
    if answer == os.getpid():
        got("a call of 32 bits")
    os._exit(0)
os.waitpid(child, 0)
