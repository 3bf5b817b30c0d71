# tries: takes open files out of other processes
# stopped by: seccomp

import subprocess
child = subprocess.Popen(["sleep", "60"])
for pid in (child.pid, 1):
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        continue
    for number in (0, 1, 3):
        attempt(f"descriptor {number} of {pid}", lambda: syscall("pidfd_getfd", handle, number, 0))
for kind in range(8):
    if what := passes("kcmp", os.getpid(), child.pid, kind, 0, 0):
        got("kcmp", kind, what)
        break
child.kill()
