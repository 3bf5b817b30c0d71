# tries: writes a result of success onto the control socket, then crashes
# stopped by: judge
# ends: signaled
# answer: {"status": "failed", "outcome": "signaled"}

import struct, subprocess
subprocess.Popen(["sleep", "60"])
payload = _json.dumps({"exit_code": 0, "result": "forged"}).encode()
os.write(3, struct.pack(">IB", len(payload), 21) + payload)
os.kill(os.getpid(), 11)
