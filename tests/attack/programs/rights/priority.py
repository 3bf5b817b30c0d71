# tries: takes the processor before others: real time, nice, deadlines, input and output first
# stopped by: user_namespace

attempt("nice -20", os.setpriority, os.PRIO_PROCESS, 0, -20)
attempt("nice -1", os.setpriority, os.PRIO_PROCESS, 0, -1)
for policy in (os.SCHED_FIFO, os.SCHED_RR):
    attempt("real time", os.sched_setscheduler, 0, policy, os.sched_param(1))
class Attributes(_ctypes.Structure):
    _fields_ = [("size", _ctypes.c_uint32), ("policy", _ctypes.c_uint32), ("flags", _ctypes.c_uint64), ("nice", _ctypes.c_int32), ("priority", _ctypes.c_uint32)] + [(n, _ctypes.c_uint64) for n in ("runtime", "deadline", "period")]
attempt("a deadline", lambda: syscall("sched_setattr", 0, _ctypes.byref(Attributes(48, 6, 0, 0, 0, 10**7, 10**8, 10**8)), 0))
# IOPRIO_CLASS_RT
attempt("disk before others", lambda: syscall("ioprio_set", 1, 0, (1 << 13) | 0))
