# tries: connects to what a neighbour listens on at its own loopback
# stopped by: network_namespace

import socket
with socket.socket() as s:
    s.settimeout(3)
    attempt("connected", s.connect, ("127.0.0.1", FACTS.neighbour.port))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(0.3)
    s.connect(("127.0.0.1", FACTS.neighbour.udp_port))
    try:
        s.send(b"hello neighbour")
        s.send(b"hello again")
        got("sent")
    except OSError:
        pass
