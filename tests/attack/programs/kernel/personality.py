# tries: becomes a program of another kind of system, with other rules for memory
# stopped by: seccomp
# like: CVE-2009-1895

before = syscall("personality", 0xFFFFFFFF)
for other in (0x0400000, 0x0100000, 0x0008, 0x0002, 0x8000000, 0x0200000):
    attempt(f"personality {other:#x}", lambda: syscall("personality", other))
    syscall("personality", before)
