# tries: is allowed more by an exec, because nothing forbids it
# stopped by: no_new_privileges

if syscall("prctl", 39, 0, 0, 0, 0) != 1:
    got("exec may raise its rights")
attempt("unset it", lambda: syscall("prctl", 38, 0, 0, 0, 0))
import subprocess
child = subprocess.run(["grep", "NoNewPrivs", "/proc/self/status"], capture_output=True, text=True).stdout
if child.split()[1] != "1":
    got("a child may raise its rights", child)
