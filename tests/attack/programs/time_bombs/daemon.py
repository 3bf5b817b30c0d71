# tries: leaves a daemon that keeps the output open, so that the call never returns
# stopped by: process_1

import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            time.sleep(1)
    os._exit(0)
os.wait()
