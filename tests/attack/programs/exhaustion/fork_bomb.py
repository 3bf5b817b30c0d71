# tries: forks in every fork, faster than anybody can count
# stopped by: cgroup, rlimits
# holds: true
# ends: process_limit, timed_out, exited
# with: {"limits": {"processes": 32}, "timeout_ms": 20000}

import time
if os.fork() == 0:
    while True:
        try:
            os.fork()
        except OSError:
            pass
        if time.monotonic() % 1 < 0.001:
            time.sleep(0.001)
time.sleep(1)
hold()
