# tries: gets handles of processes that are not its own, by which they are signalled later
# stopped by: pid_namespace

for pid in [*others(), FACTS.pid, FACTS.command_pid]:
    if pid > 64 or os.path.exists(f"/proc/{pid}"):
        attempt(f"a handle of {pid}", os.pidfd_open, pid)
