# tries: signals groups of processes that are not its own
# stopped by: pid_namespace, user_namespace

import signal
# All at once tells nothing: the call succeeds even where it reaches nobody.
signal.signal(signal.SIGURG, signal.SIG_IGN)
os.kill(-1, signal.SIGURG) if list(others()) else None
groups = {FACTS.pid, FACTS.command_pid}
for pid in others():
    try:
        groups.add(os.getpgid(pid))
    except OSError:
        pass
for group in groups - {0, 1, os.getpgid(0), os.getpgid(1)}:
    attempt(f"the group {group}", os.killpg, group, 0)
