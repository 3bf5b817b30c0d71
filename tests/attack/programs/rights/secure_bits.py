# tries: changes the bits by which the kernel decides what exec and changes of the user give
# stopped by: capabilities

for bits in (0, 1 << 4, 0x2F):
    now = syscall("prctl", 27, 0, 0, 0, 0)
    if bits != now:
        attempt(f"secure bits {bits:#x}", lambda: syscall("prctl", 28, bits, 0, 0, 0))
