# tries: leaves ended processes that nobody asks after, so that there are no numbers left
# stopped by: cgroup, rlimits
# holds: true
# ends: process_limit, exited
# with: {"limits": {"processes": 32}}

count = 0
try:
    while count < 2000:
        if os.fork() == 0:
            os._exit(0)
        count += 1
except OSError:
    pass
if count > 200:
    got(count, "ended processes kept")
hold()
