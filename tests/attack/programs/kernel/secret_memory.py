# tries: takes memory that the kernel cannot take back, and that no limit counts in time
# stopped by: seccomp
# with: {"limits": {"memory_mb": 128}}

for flags in (0, 0o2000000, 1):
    if what := passes("memfd_secret", flags):
        got("memfd_secret", flags, what)
