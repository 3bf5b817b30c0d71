# tries: starts threads without end
# stopped by: cgroup, rlimits
# holds: true
# ends: process_limit, exited
# with: {"limits": {"processes": 24}}

import threading, time
threading.stack_size(65536)
count = 0
try:
    while count < 300:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        count += 1
except RuntimeError:
    print(count, flush=True)
if count >= 100:
    got(count, "threads where 24 tasks are allowed")
hold()
