# tries: uses more of the processor than its share, in many processes
# stopped by: cgroup
# with: {"limits": {"cpu": 0.2, "processes": 16}, "timeout_ms": 30000}

import resource, time
begun = time.monotonic()
for _ in range(4):
    if os.fork() == 0:
        end = begun + 2.5
        while time.monotonic() < end:
            pass
        os._exit(0)
for _ in range(4):
    os.wait()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
share = (used.ru_utime + used.ru_stime) / (time.monotonic() - begun)
if share > 0.45:
    got(f"{share:.2f} of a core where 0.2 are allowed")
