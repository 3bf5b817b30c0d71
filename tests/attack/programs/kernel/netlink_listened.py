# tries: listens to the kernel's messages about devices, processes and audit
# stopped by: user_namespace, network_namespace

import socket, struct
for protocol, group, name in ((9, 1, "audit"), (11, 1, "processes")):
    try:
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        s.bind((0, group))
    except OSError:
        continue
    # The connector asks for a message that begins it: PROC_CN_MCAST_LISTEN.
    s.settimeout(0.5)
    try:
        s.send(struct.pack("=IHHII", 40, 3, 0, 0, os.getpid()) + struct.pack("=IIIIHHI", 1, 1, 0, 0, 4, 0, 1))
        got("events of", name, s.recv(4096)[:20])
    except OSError:
        pass
