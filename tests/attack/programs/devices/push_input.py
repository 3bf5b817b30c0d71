# tries: pushes input into a terminal, as if somebody had typed it
# stopped by: seccomp
# like: CVE-2017-5226

import fcntl, pty
master, slave = pty.openpty()
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(slave, 0x540E, 0)
    # TIOCSTI is refused by newer kernels too, unless the operator allows it.
    attempt("TIOCSTI", lambda: fcntl.ioctl(slave, 0x5412, b"x"))
    os._exit(0)
os.waitpid(child, 0)
# The upper half of the argument is not looked at by the kernel.
try:
    syscall(16 if X86 else 29, slave, 0x1_0000_5412, b"x")
    got("TIOCSTI with a number that is longer")
except OSError:
    pass
