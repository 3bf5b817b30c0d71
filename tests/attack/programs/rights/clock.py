# tries: sets the machine's clock, to the time it is
# stopped by: seccomp, user_namespace

import time
class Time(_ctypes.Structure):
    _fields_ = [("seconds", _ctypes.c_long), ("rest", _ctypes.c_long)]

now = Time(int(time.time()), time.time_ns() % 10**9)
attempt("clock_settime", lambda: syscall("clock_settime", 0, _ctypes.byref(now)))
attempt("settimeofday", lambda: syscall("settimeofday", _ctypes.byref(Time(now.seconds, now.rest // 1000)), None))
