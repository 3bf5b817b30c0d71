# tries: writes a result of success onto the control socket, then fails
# stopped by: judge
# answer: {"status": "failed", "outcome": "exited", "exit_code": 3}

import struct, subprocess
# With a process beside it the program's word is not enough for its end.
subprocess.Popen(["sleep", "60"])
payload = _json.dumps({"exit_code": 0, "result": "forged", "error": None}).encode()
os.write(3, struct.pack(">IB", len(payload), 21) + payload)
os._exit(3)
