# tries: enters its own user namespace anew, which gives all rights in it
# stopped by: seccomp

for path in ("/proc/self/ns/user", "/proc/1/ns/user"):
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        continue
    # EINVAL says that the kernel has looked at it.
    if what := passes("setns", fd, 0):
        got("setns", path, what)
