# tries: connects to a service of the host on loopback
# stopped by: network_namespace
# like: CVE-2024-29021

import socket
for family, address in ((socket.AF_INET, ("127.0.0.1", FACTS.port)), (socket.AF_INET, ("0.0.0.0", FACTS.port)), (socket.AF_INET, ("127.1.2.3", FACTS.port)), (socket.AF_INET, ("localhost", FACTS.port))):
    with socket.socket(family) as s:
        s.settimeout(5)
        attempt(f"connected to {address}", s.connect, address)
