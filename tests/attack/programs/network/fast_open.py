# tries: sends data with the first packet, by calls that need no connect
# stopped by: network_namespace

import socket
with socket.socket() as s:
    s.settimeout(2)
    attempt("sent", s.sendto, b"x", 0x20000000, ("127.0.0.1", FACTS.port))
with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
    s.setblocking(False)
    error = s.connect_ex(("127.0.0.1", FACTS.port))
    if error in (0, errno.EINPROGRESS):
        import select
        select.select([], [s], [], 2)
        if s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
            got("connected")
try:
    m = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    m.settimeout(2)
    attempt("connected by MPTCP", m.connect, ("127.0.0.1", FACTS.port))
except OSError:
    pass
