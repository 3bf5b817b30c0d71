# tries: sends more frames than the service can keep
# stopped by: judge
# ends: exited, timed_out, lost, output_limit, oom_killed
# with: {"timeout_ms": 2500}

import struct, threading
payload = _json.dumps({"code": "x", "message": "y" * 10000}).encode()
frame = struct.pack(">IB", len(payload), 20) + payload
def drain():
    while os.read(3, 65536):
        pass
threading.Thread(target=drain, daemon=True).start()
while True:
    os.write(3, frame)
