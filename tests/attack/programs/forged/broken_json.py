# tries: sends frames whose JSON is deep, wrong, or not UTF-8
# stopped by: judge
# ends: lost, exited
# answer: {"fault": "user"}

import struct, time
for payload in (b"[" * 100000 + b"]" * 100000,):
    os.write(3, struct.pack(">IB", len(payload), 18) + payload)
time.sleep(5)
