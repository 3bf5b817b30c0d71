# tries: makes a file that says to be larger than any disk
# stopped by: rlimits
# ends: disk_limit, exited, signaled
# with: {"limits": {"disk_mb": 16}}

import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for place in ("/data", "/dev/shm", "/tmp"):
    file = os.open(f"{place}/sparse", os.O_CREAT | os.O_RDWR)
    for size in (1 << 40, 1 << 34):
        attempt(f"a file of {size} bytes in {place}", os.ftruncate, file, size)
