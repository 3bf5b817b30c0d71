# tries: gives a terminal a rare line discipline, whose code in the kernel is seldom looked at
# stopped by: seccomp
# like: CVE-2017-2636, CVE-2023-6546

import fcntl, pty
master, slave = pty.openpty()
for number in range(1, 31):
    try:
        fcntl.ioctl(slave, 0x5423, number.to_bytes(4, sys.byteorder))
        got("line discipline", number)
        fcntl.ioctl(slave, 0x5423, bytes(4))
    except OSError:
        pass
