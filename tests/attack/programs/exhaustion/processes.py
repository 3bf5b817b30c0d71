# tries: forks without end
# stopped by: cgroup
# ends: process_limit, timed_out, cancelled
# with: {"limits": {"processes": 24}, "timeout_ms": 3000}

import time
count = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
except OSError:
    pass
if count >= 30:
    got(count, "processes where 24 are allowed")
while True:
    time.sleep(1)
