# tries: makes timers without end, which the kernel serves at every tick
# stopped by: rlimits
# holds: true

count = 0
class Event(_ctypes.Structure):
    _fields_ = [("value", _ctypes.c_long), ("signal", _ctypes.c_int), ("notify", _ctypes.c_int), ("pad", _ctypes.c_char * 48)]

event, timer = Event(0, 0, 1, b""), _ctypes.c_int()
spec = (_ctypes.c_long * 4)(0, 1000000, 0, 1000000)
try:
    while count < 100000:
        syscall("timer_create", 1, _ctypes.byref(event), _ctypes.byref(timer))
        count += 1
        if count <= 1000:
            syscall(223 if X86 else 110, timer, 0, spec, None)
except OSError as error:
    print(count, error.strerror, flush=True)
if count >= 50000:
    got(count, "timers")
hold()
