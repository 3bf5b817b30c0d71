# tries: begins a frame and never ends it, so that the service waits
# stopped by: judge
# ends: timed_out, lost
# with: {"timeout_ms": 800}

import struct, time
os.write(3, struct.pack(">IB", 1000, 18) + b'{"seq": 1')
while True:
    time.sleep(1)
