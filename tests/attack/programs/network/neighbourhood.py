# tries: connects to the addresses by which hosts are reached from containers
# stopped by: network_namespace
# outside: true

import socket
for address in ("10.0.2.2", "172.17.0.1", "172.18.0.1", "192.168.65.2", "192.168.122.1", "10.88.0.1", "169.254.1.1"):
    for port in (22, 2375, 6443):
        with socket.socket() as s:
            s.settimeout(1)
            attempt(f"connected to {address}", s.connect, (address, port))
for name in ("host.docker.internal", "gateway.docker.internal", "host.containers.internal", "kubernetes.default.svc"):
    attempt(f"a name {name}", socket.gethostbyname, name)
