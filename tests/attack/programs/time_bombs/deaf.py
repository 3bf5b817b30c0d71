# tries: outlives its time by ignoring every signal
# stopped by: judge
# ends: timed_out
# with: {"timeout_ms": 500}

import signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True:
    time.sleep(1)
