# tries: sends datagrams to sockets of the host that have a name and no path
# stopped by: network_namespace, landlock

import socket
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
    attempt("sent", s.sendto, b"x", "\0" + FACTS["abstract"] + "-datagrams")
    attempt("connected", s.connect, "\0" + FACTS["abstract"] + "-datagrams")
