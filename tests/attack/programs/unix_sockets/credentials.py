# tries: claims to be root or another process in the credentials of a message
# stopped by: capabilities

import socket, struct
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
b.setsockopt(socket.SOL_SOCKET, 16, 1)
for pid, uid, gid in ((os.getpid(), 0, 0), (1, 1000, 1000), (os.getpid(), 1000, 0), (FACTS.pid, 1000, 1000)):
    claim = struct.pack("iII", pid, uid, gid)
    attempt(f"claimed {pid} {uid} {gid}", a.sendmsg, [b"x"], [(socket.SOL_SOCKET, 2, claim)])
