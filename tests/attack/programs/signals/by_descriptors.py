# tries: has the kernel send signals for it: owners of descriptors, leases and pipes
# stopped by: pid_namespace, user_namespace

import fcntl, signal, socket
a, b = socket.socketpair()
for pid in (FACTS.pid, FACTS.command_pid, -FACTS.pid):
    attempt(f"made {pid} the owner", lambda: fcntl.fcntl(a, fcntl.F_SETOWN, pid))
    fcntl.fcntl(a, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(a, fcntl.F_SETFL, fcntl.fcntl(a, fcntl.F_GETFL) | os.O_ASYNC)
    b.send(b"x")
