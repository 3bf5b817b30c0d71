# tries: takes more memory than it may have, a little in each of many processes
# stopped by: cgroup
# with: {"limits": {"memory_mb": 96, "processes": 32}, "timeout_ms": 8000}
# ends: exited, oom_killed, timed_out

import time
out, into = os.pipe()
for _ in range(12):
    if os.fork() == 0:
        block = bytearray(os.urandom(4096) * 256 * 12)
        os.write(into, b"x")
        time.sleep(60)
        os._exit(0)
time.sleep(3)
os.set_blocking(out, False)
try:
    alive = len(os.read(out, 100))
except BlockingIOError:
    alive = 0
if alive * 12 > 100:
    living = sum(1 for name in os.listdir("/proc") if name.isdigit() and "Z" not in open(f"/proc/{name}/stat").read().rsplit(")", 1)[1][:3])
    if living >= 12:
        got(alive * 12, "MiB where 96 are allowed")
