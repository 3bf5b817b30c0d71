# tries: holds a session for ever by heeding no interrupt, and hands that on to the next execution
# stopped by: judge
# session: true
# with: {"timeout_ms": 4000}

import threading, time
def work():
    while True:
        time.sleep(0.1)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
while True:
    try:
        while True:
            time.sleep(1)
    except BaseException:
        pass
# --- next step ---
import threading
if threading.active_count() > 6:
    got("threads of the execution before", threading.active_count())
