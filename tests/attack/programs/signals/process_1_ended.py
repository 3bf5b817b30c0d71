# tries: ends, stops or crashes process 1 of its sandbox, on which all else depends
# stopped by: process_1

import signal, time
for number in range(1, 65):
    try:
        os.kill(1, number)
    except OSError:
        pass
time.sleep(0.05)
state = open("/proc/1/stat").read().rsplit(")", 1)[1].split()[0]
if state not in "SRDI":
    got("process 1 in state", state)
