# tries: reads the lists of shared memory, queues and semaphores of others
# stopped by: ipc_namespace

for kind in ("shm", "msg", "sem"):
    lines = open(f"/proc/sysvipc/{kind}").read().splitlines()[1:]
    if lines:
        got(kind, lines)
