# tries: has a parent that waits in the kernel where only few signals reach it
# stopped by: judge
# ends: timed_out
# with: {"timeout_ms": 800}

import subprocess
# vfork holds the parent until the child execs or ends.
_libc.vfork.restype = _ctypes.c_int
subprocess.run(["bash", "-c", "kill -STOP $$; exec sleep 1000"])
