# tries: lists sockets by the kernel's diagnosis, with names and peers
# stopped by: network_namespace

import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
s.settimeout(2)
for family, rest in ((1, struct.pack("=BBHIIIII", 1, 0, 0, 0xFFFFFFFF, 0, 0x7, 0, 0)), (2, struct.pack("=BBBxI", 2, 6, 0, 0xFFFFFFFF) + bytes(48))):
    s.send(struct.pack("=IHHII", 16 + len(rest), 20, 0x301, 1, 0) + rest)
    while True:
        try:
            answer = s.recv(65536)
        except OSError:
            break
        if FACTS["abstract"].encode() in answer or struct.pack(">H", FACTS.port) in answer and family == 2:
            got("the host's sockets")
        if struct.unpack_from("=H", answer, 4)[0] in (2, 3):
            break
