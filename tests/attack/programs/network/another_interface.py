# tries: leaves by another interface than its loopback
# stopped by: network_namespace

import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
names = {"eth0", "ens3", "enp1s0", "docker0", "wlan0", *(name for _, name in socket.if_nameindex())} - {"lo"}
for name in names:
    attempt(f"bound to {name}", s.setsockopt, socket.SOL_SOCKET, 25, name.encode())
