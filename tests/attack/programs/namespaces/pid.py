# tries: finds a process 1 that is not its sandbox's own
# stopped by: pid_namespace

name = read("/proc/1/comm").decode().strip()
if name != "fumehood-init":
    got("process 1 is", name)
if os.getppid() != 1 and os.getpid() > 64:
    got("its parent is", os.getppid(), "and it is", os.getpid())
