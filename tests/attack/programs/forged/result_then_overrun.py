# tries: writes a result of success onto the control socket, then goes on without end
# stopped by: judge
# ends: timed_out
# answer: {"status": "failed", "outcome": "timed_out"}
# with: {"timeout_ms": 700}

import struct, subprocess, time
subprocess.Popen(["sleep", "60"])
payload = _json.dumps({"exit_code": 0, "result": "forged"}).encode()
os.write(3, struct.pack(">IB", len(payload), 21) + payload)
while True:
    time.sleep(1)
