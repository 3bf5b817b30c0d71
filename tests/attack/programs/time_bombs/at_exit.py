# tries: begins its real work when it has ended
# stopped by: judge
# ends: timed_out
# with: {"timeout_ms": 800}

import atexit, threading, time
def work():
    while True:
        time.sleep(0.1)
atexit.register(work)
threading.Thread(target=work).start()
