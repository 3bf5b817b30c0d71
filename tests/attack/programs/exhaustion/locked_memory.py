# tries: locks all the memory that its user may lock, so that others can lock none
# stopped by: own_uid, rlimits
# holds: true

import mmap
memory = mmap.mmap(-1, 64 << 20)
address = _ctypes.addressof(_ctypes.c_char.from_buffer(memory))
locked = 0
try:
    while True:
        syscall("mlock", _ctypes.c_void_p(address + locked), 65536)
        locked += 65536
except OSError as error:
    print(locked, error.strerror, flush=True)
if locked > 16 << 20:
    got("locked", locked)
hold()
