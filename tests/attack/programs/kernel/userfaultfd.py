# tries: holds up the kernel at a fault of its choice, by which races are won
# stopped by: seccomp
# like: CVE-2021-22600

for flags in (0, 1, 0o2000000 | 1):
    if what := passes("userfaultfd", flags):
        got("userfaultfd", flags, what)
attempt("the device", lambda: os.open("/dev/userfaultfd", os.O_RDWR))
