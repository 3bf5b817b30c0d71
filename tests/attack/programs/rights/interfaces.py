# tries: changes the interface and the routes of its own network namespace
# stopped by: capabilities

import fcntl, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
address = struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, bytes([10, 9, 8, 7]))
attempt("gave lo an address", lambda: fcntl.ioctl(s, 0x8916, address))
attempt("took lo down", lambda: fcntl.ioctl(s, 0x8914, struct.pack("16sH22x", b"lo", 0)))
attempt("changed the MTU", lambda: fcntl.ioctl(s, 0x8922, struct.pack("16si20x", b"lo", 1500)))
attempt("made a bridge", lambda: fcntl.ioctl(s, 0x89A0, b"br0\0"))
attempt("a route", lambda: fcntl.ioctl(s, 0x890B, bytes(120)))
