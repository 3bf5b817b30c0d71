# tries: reaches the code that reads options of file systems, where its checks were wrong before
# stopped by: seccomp
# like: CVE-2022-0185

if what := passes("fsconfig", 0, 0, b"source", b"x" * 4000, 0):
    got("fsconfig", what)
