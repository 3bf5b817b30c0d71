# tries: has the kernel do calls that no filter sees
# stopped by: seccomp
# like: CVE-2022-29582, CVE-2023-2598

parameters = (_ctypes.c_ubyte * 256)()
if what := passes("io_uring_setup", 8, parameters):
    got("io_uring_setup", what)
if what := passes("io_uring_enter", 99, 0, 0, 0, None, 0):
    got("io_uring_enter", what)
if what := passes("io_uring_register", 99, 0, None, 0):
    got("io_uring_register", what)
