# tries: loads a program into the kernel
# stopped by: seccomp
# like: CVE-2021-3490, CVE-2017-16995

for command in (0, 5, 2, 18):
    attributes = (_ctypes.c_ubyte * 128)()
    if what := passes("bpf", command, attributes, 128):
        got("bpf", command, what)
