# tries: connects to sockets of the host that have a name and no path
# stopped by: network_namespace, landlock
# like: CVE-2020-15257

import socket
for kind, name in ((socket.SOCK_STREAM, FACTS["abstract"]), (socket.SOCK_SEQPACKET, FACTS["abstract"])):
    with socket.socket(socket.AF_UNIX, kind) as s:
        attempt("connected", s.connect, "\0" + name)
