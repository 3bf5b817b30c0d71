# tries: makes closed calls by the numbers of x32, which other filters forget
# stopped by: seccomp
# needs: x86_64

for number in (39, 101, 165, 246, 272, 298, 321):
    try:
        got("x32", number, syscall(0x40000000 + number, 0, 0, 0, 0, 0))
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            got("x32", number, error.strerror)
