# tries: opens sockets of families that reach the host or rare code: packets, crypto, vsock, bluetooth and others
# stopped by: seccomp
# like: CVE-2017-7308, CVE-2016-8655

import socket
for family in range(3, 50):
    if family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
        continue
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW, socket.SOCK_RDM):
        try:
            socket.socket(family, kind, 0)
            got("a socket of family", family, "kind", kind)
        except OSError:
            pass
