# tries: connects to addresses beyond the machine
# stopped by: network_namespace
# outside: true

import socket, time
begun = time.monotonic()
for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET, "198.51.100.1"), (socket.AF_INET, "203.0.113.1"), (socket.AF_INET6, "2001:db8::1")):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for port in (53, 80, 443):
            with socket.socket(family, kind) as s:
                s.settimeout(2)
                attempt(f"connected to {address} {port}", s.connect, (address, port))
if time.monotonic() - begun > 2:
    got("packets were sent and waited for")
