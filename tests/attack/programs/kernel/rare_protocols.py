# tries: opens sockets of rare protocols in families that are open, whose code the kernel would load
# stopped by: network_namespace, seccomp
# like: CVE-2017-6074, CVE-2019-8956

import socket
for family in (socket.AF_INET, socket.AF_INET6):
    for kind, protocol, name in ((socket.SOCK_STREAM, 33, "DCCP"), (6, 33, "DCCP"), (socket.SOCK_SEQPACKET, 132, "SCTP"), (socket.SOCK_STREAM, 132, "SCTP"), (socket.SOCK_DGRAM, 115, "L2TP"), (socket.SOCK_STREAM, 256, "SMC"), (socket.SOCK_DGRAM, 50, "ESP"), (socket.SOCK_DGRAM, 51, "AH")):
        try:
            socket.socket(family, kind, protocol)
            got(name)
        except OSError:
            pass
