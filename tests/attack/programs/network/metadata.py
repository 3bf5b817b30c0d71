# tries: asks the services of clouds for metadata and credentials, by every form of their address
# stopped by: network_namespace
# outside: true
# like: CVE-2019-5418

import socket, time
begun = time.monotonic()
for address in ("169.254.169.254", "169.254.170.2", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.16689662", "100.100.100.200", "192.0.0.192"):
    with socket.socket(socket.AF_INET) as s:
        s.settimeout(3)
        attempt(f"connected to {address}", s.connect, (address, 80))
for address in ("fd00:ec2::254", "::ffff:169.254.169.254", "fd20:ce::254"):
    with socket.socket(socket.AF_INET6) as s:
        s.settimeout(3)
        attempt(f"connected to {address}", s.connect, (address, 80))
if time.monotonic() - begun > 2:
    got("packets were sent and waited for")
