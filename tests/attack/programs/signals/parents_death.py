# tries: outlives its parents by cutting every tie: sessions, groups, death signals, reapers
# stopped by: process_1

import subprocess, time
child = os.fork()
if child == 0:
    os.setsid()
    syscall("prctl", 1, 0, 0, 0, 0)
    # PR_SET_CHILD_SUBREAPER
    syscall("prctl", 36, 1, 0, 0, 0)
    if os.fork() == 0:
        os.setsid()
        for number in range(1, 32):
            try:
                import signal
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        time.sleep(1000)
    os._exit(0)
os.waitpid(child, 0)
