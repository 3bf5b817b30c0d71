# tries: outlives its time by standing still
# stopped by: judge
# ends: timed_out
# with: {"timeout_ms": 500}

import signal
while True:
    os.kill(os.getpid(), signal.SIGSTOP)
