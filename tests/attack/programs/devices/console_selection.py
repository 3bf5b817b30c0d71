# tries: pastes into a console with TIOCLINUX, and takes over its output
# stopped by: seccomp, user_namespace

import fcntl, pty
master, slave = pty.openpty()
for terminal in (0, 1, 2, master, slave):
    attempt("TIOCLINUX", lambda: fcntl.ioctl(terminal, 0x541C, b"\x02" + bytes(16)))
    attempt("TIOCCONS", lambda: fcntl.ioctl(terminal, 0x541D))
