# tries: gives itself capabilities
# stopped by: capabilities

header = (_ctypes.c_uint32 * 2)(0x20080522, 0)
for bits in (0xFFFFFFFF, 1 << 21, 1 << 12, 1 << 2):
    data = (_ctypes.c_uint32 * 6)(bits, bits, bits, 0, 0, 0)
    attempt(f"capset {bits:#x}", lambda: syscall("capset", header, data))
for number in range(41):
    # PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE
    attempt(f"an ambient capability {number}", lambda: syscall("prctl", 47, 2, number, 0, 0))
