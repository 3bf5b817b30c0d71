# tries: announces a frame of four gigabytes, so that the service makes room for it
# stopped by: judge
# ends: lost
# answer: {"outcome": "lost", "fault": "user"}

import struct, time
os.write(3, struct.pack(">IB", 2**32 - 1, 21))
try:
    for _ in range(2000):
        os.write(3, bytes(1 << 16))
except OSError:
    pass
time.sleep(5)
