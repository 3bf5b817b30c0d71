# tries: finds that it shares the network namespace of the host
# stopped by: network_namespace

import socket
if os.readlink("/proc/self/ns/net") == FACTS.namespaces.net:
    got("the host's network namespace")
names = [name for _, name in socket.if_nameindex()]
if names != ["lo"]:
    got("interfaces", names)
