# tries: attaches to its own processes and to those of others, and changes them
# stopped by: seccomp

import subprocess
child = subprocess.Popen(["sleep", "60"])
for pid in (child.pid, 1, os.getppid()):
    for request in (16, 0x4206):
        if what := passes("ptrace", request, pid, 0, 0):
            got("ptrace", pid, what)
child.kill()
