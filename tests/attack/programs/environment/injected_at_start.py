# tries: has code of its own run in interpreters before they are confined, by variables and files that they read
# stopped by: process_1
# like: dify-sandbox PR96

import subprocess
own = [line for line in open("/proc/self/status").read().splitlines() if line.startswith(("Seccomp:", "NoNewPrivs:", "Cap"))]
for place in ("/home/sandbox/.local/lib/python3.11/site-packages", "/data", "/tmp"):
    os.makedirs(place, exist_ok=True)
    with open(f"{place}/usercustomize.py", "w") as file:
        file.write(f"OWN = {own!r}\n" + "import os\nstatus = open('/proc/self/status').read()\nif [line for line in status.splitlines() if line.startswith(('Seccomp:', 'NoNewPrivs:', 'Cap'))] != OWN: os.write(1, b'GOT ran unconfined\\n')\n")
    os.replace(f"{place}/usercustomize.py", f"{place}/sitecustomize.py")
for variables in ({"PYTHONPATH": "/data"}, {"PYTHONSTARTUP": "/data/sitecustomize.py"}, {"BASH_ENV": "/data/sitecustomize.py"}):
    print(subprocess.run([sys.executable, "-c", "pass"], env=dict(os.environ, **variables), capture_output=True, text=True).stdout, end="")
