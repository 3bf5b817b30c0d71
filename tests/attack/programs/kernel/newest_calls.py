# tries: uses calls of the kernel that are newer than anybody has reviewed
# stopped by: seccomp

for number in range(463, 480):
    try:
        got(number, syscall(number, 0, 0, 0, 0, 0, 0))
    except OSError as error:
        if error.errno != errno.ENOSYS:
            got(number, error.strerror)
