# tries: learns where its memory lies in the machine, for attacks on the memory itself
# stopped by: user_namespace

import mmap
page = mmap.mmap(-1, 4096)
page[0] = 1
address = _ctypes.addressof(_ctypes.c_char.from_buffer(page))
with open("/proc/self/pagemap", "rb", buffering=0) as file:
    file.seek(address // 4096 * 8)
    entry = int.from_bytes(file.read(8), sys.byteorder)
if entry & ((1 << 55) - 1):
    got("a physical page", hex(entry))
