# tries: connects to a service of the host by version 6 of the protocol, and by mapped addresses
# stopped by: network_namespace
# needs: fact port6

import socket
for address in (("::1", FACTS.port6), ("::ffff:127.0.0.1", FACTS.port), ("::", FACTS.port6)):
    with socket.socket(socket.AF_INET6) as s:
        s.settimeout(5)
        attempt(f"connected to {address}", s.connect, address)
