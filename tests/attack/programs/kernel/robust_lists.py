# tries: reads pointers of other processes by the list of their locks
# stopped by: pid_namespace, process_1

head, length = _ctypes.c_void_p(), _ctypes.c_size_t()
for pid in (1, FACTS.pid, FACTS.command_pid):
    if pid != os.getpid() and (pid == 1 or os.path.exists(f"/proc/{pid}")):
        attempt(f"the list of {pid}", lambda: syscall("get_robust_list", pid, _ctypes.byref(head), _ctypes.byref(length)))
