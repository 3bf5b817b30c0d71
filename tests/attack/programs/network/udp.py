# tries: sends datagrams to the host
# stopped by: network_namespace

import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    for address in (("127.0.0.1", FACTS.udp_port), ("127.255.255.255", FACTS.udp_port)):
        try:
            s.connect(address)
            s.send(b"from a sandbox")
            # Its own loopback refuses at the next call, since nobody listens there.
            s.settimeout(0.2)
            s.send(b"again")
            got("sent to", address)
        except OSError:
            pass
