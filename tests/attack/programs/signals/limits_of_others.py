# tries: changes limits, priority and processors of processes of the host
# stopped by: pid_namespace, user_namespace

limits = (_ctypes.c_uint64 * 2)(1, 1)
for pid in (FACTS.pid, FACTS.command_pid):
    attempt(f"the limits of {pid}", lambda: syscall("prlimit64", pid, 7, None, limits))
    attempt(f"the priority of {pid}", os.setpriority, os.PRIO_PROCESS, pid, 19)
    attempt(f"the processors of {pid}", os.sched_setaffinity, pid, {0})
    attempt(f"the scheduling of {pid}", os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0))
    attempt(f"the disk priority of {pid}", lambda: syscall("ioprio_set", 1, pid, 3 << 13))
    attempt(f"the session of {pid}", os.getsid, pid)
