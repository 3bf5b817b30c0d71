# tries: forks away from every kill, so that some descendant always lives
# stopped by: judge, cgroup
# ends: timed_out, process_limit
# with: {"timeout_ms": 1000, "limits": {"processes": 32}}

import time
while True:
    try:
        if os.fork():
            if os.getpid() != 2:
                os._exit(0)
            time.sleep(0.001)
        else:
            os.setsid()
    except OSError:
        time.sleep(0.01)
