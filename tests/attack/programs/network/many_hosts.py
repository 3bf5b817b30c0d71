# tries: reaches whoever listens to groups and broadcasts
# stopped by: network_namespace
# outside: true

import socket, struct
for address in ("255.255.255.255", "224.0.0.1", "224.0.0.251", "239.255.255.250"):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
        attempt(f"sent to {address}", s.sendto, b"x", (address, 9))
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
    attempt("sent to all nodes", s.sendto, b"x", ("ff02::1%lo" if False else "ff02::1", 9))
