# tries: signals everything that it may, at once and by groups
# stopped by: pid_namespace, user_namespace

import signal
signal.signal(signal.SIGURG, signal.SIG_IGN)
attempt("somebody beside itself", os.kill, -1, signal.SIGURG)
for group in (FACTS.pid, FACTS.command_pid):
    attempt(f"the group {group}", os.killpg, group, signal.SIGTERM)
