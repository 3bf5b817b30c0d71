# tries: has a signal reach process 1 at all
# stopped by: landlock
# needs: landlock 6

import signal
for number in (0, signal.SIGCHLD, signal.SIGURG):
    attempt(f"signal {number} to process 1", os.kill, 1, number)
attempt("by its descriptor", lambda: signal.pidfd_send_signal(os.pidfd_open(1), 0))
