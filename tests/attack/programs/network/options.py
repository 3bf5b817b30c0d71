# tries: leaves by options of sockets: another interface, marks, transparency, sources that are not its own
# stopped by: network_namespace, capabilities

import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
for interface in (b"eth0", b"ens3", b"enp1s0", b"docker0", b"wlan0"):
    attempt(f"bound to {interface}", s.setsockopt, socket.SOL_SOCKET, 25, interface)
attempt("a mark", s.setsockopt, socket.SOL_SOCKET, 36, 1)
attempt("transparency", s.setsockopt, socket.IPPROTO_IP, 19, 1)
attempt("repair", s.setsockopt, socket.IPPROTO_TCP, 19, 1)
attempt("a buffer beyond the limits", s.setsockopt, socket.SOL_SOCKET, 33, 1 << 24)
attempt("a queue of high priority", s.setsockopt, socket.SOL_SOCKET, socket.SO_PRIORITY, 7)
