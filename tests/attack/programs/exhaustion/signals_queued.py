# tries: queues so many signals that the user's share of them is used up
# stopped by: rlimits
# holds: true

import signal
signal.pthread_sigmask(signal.SIG_BLOCK, set(range(34, 64)))
count = 0
value = _ctypes.c_long(1)
try:
    while count < 200000:
        if _libc.sigqueue(os.getpid(), 34 + count % 29, value):
            raise OSError(_ctypes.get_errno(), "full")
        count += 1
except OSError as error:
    print(count, flush=True)
if count > 4096:
    got(count, "signals queued")
hold()
