# tries: gets handles of processes of the host, by which they are signalled later
# stopped by: pid_namespace

for pid in (FACTS.pid, FACTS.command_pid):
    attempt(f"a handle of {pid}", os.pidfd_open, pid)
