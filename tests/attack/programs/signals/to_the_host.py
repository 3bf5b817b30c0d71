# tries: ends processes of the host by their numbers
# stopped by: pid_namespace, user_namespace

import signal
for pid in (FACTS.pid, FACTS.command_pid):
    # There may be a process of its own with that number.
    if pid > 64:
        attempt(f"asked after {pid}", os.kill, pid, 0)
attempt("ended a process of the host", os.kill, FACTS.pid, signal.SIGKILL)
attempt("stopped a process of the host", os.kill, FACTS.pid, signal.SIGSTOP)
