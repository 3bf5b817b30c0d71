# tries: leaves by options of sockets: marks, transparency, connections that were never made, larger buffers
# stopped by: capabilities

import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
attempt("a mark", s.setsockopt, socket.SOL_SOCKET, 36, 1)
attempt("transparency", s.setsockopt, socket.IPPROTO_IP, 19, 1)
attempt("repair", s.setsockopt, socket.IPPROTO_TCP, 19, 1)
attempt("a buffer beyond the limits", s.setsockopt, socket.SOL_SOCKET, 33, 1 << 24)
attempt("a queue of high priority", s.setsockopt, socket.SOL_SOCKET, socket.SO_PRIORITY, 7)
