# tries: sets the machine's name, to the name it has
# stopped by: seccomp, capabilities

import socket
name = socket.gethostname().encode()
attempt("sethostname", lambda: syscall("sethostname", name, len(name)))
attempt("setdomainname", lambda: syscall("setdomainname", b"x", 1))
