# tries: opens raw sockets, which see and forge what others send
# stopped by: capabilities

import socket
for family in (socket.AF_INET, socket.AF_INET6):
    for protocol in (1, 2, 6, 17, 58, 255):
        try:
            socket.socket(family, socket.SOCK_RAW, protocol)
            got("a raw socket", family, protocol)
        except OSError:
            pass
