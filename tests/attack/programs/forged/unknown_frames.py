# tries: sends what is no frame of the protocol, so that the service stumbles
# stopped by: judge
# ends: lost
# answer: {"outcome": "lost", "fault": "user"}

import struct, time
os.write(3, struct.pack(">IB", 2, 99) + b"{}")
time.sleep(5)
