# tries: makes interfaces, addresses and packet filters by netlink, the code that most exploits of the kernel begin with
# stopped by: capabilities
# like: CVE-2024-1086, CVE-2022-32250

import socket, struct

def ask(protocol, kind, payload, flags=0x5 | 0x400):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as s:
        s.settimeout(5)
        s.bind((0, 0))
        s.send(struct.pack("=IHHII", 16 + len(payload), kind, flags, 1, 0) + payload)
        answer = s.recv(65536)
        # NLMSG_ERROR carries an errno; anything but a refusal was let through.
        if struct.unpack_from("=H", answer, 4)[0] == 2:
            return -struct.unpack_from("=i", answer, 16)[0]
        return 0

link = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + struct.pack("=HH", 20, 18 | 0x8000) + struct.pack("=HH", 10, 1) + b"dummy\0\0\0"
table = struct.pack("=BBH", 2, 0, 0) + struct.pack("=HH", 6, 1) + b"t\0\0\0"
for name, protocol, kind, payload in (
    ("an interface", 0, 16, link),
    ("an address", 0, 20, struct.pack("=BBBBI", 2, 8, 0, 0, 1) + struct.pack("=HH4s", 8, 2, bytes([10, 1, 1, 1]))),
    ("a queueing discipline", 0, 36, struct.pack("=BxHiIII", 0, 0, 1, 0, 0xFFFFFFFF, 0) + struct.pack("=HH", 8, 1) + b"fq\0\0"),
    ("a packet filter table", 12, (10 << 8) | 0, table),
    ("an IPsec state", 6, 16, bytes(224)),
):
    try:
        error = ask(protocol, kind, payload)
    except OSError:
        continue
    if error not in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT):
        got(name, "was answered with", os.strerror(error) if error else "success")
