# tries: learns from its sockets and pipes who is at the other end, and signals them
# stopped by: pid_namespace, user_namespace

import fcntl, socket, stat, struct
for number in range(0, 64):
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            continue
        s = socket.socket(fileno=os.dup(number))
        pid, uid, gid = struct.unpack("iII", s.getsockopt(socket.SOL_SOCKET, 17, 12))
    except OSError:
        continue
    # A peer outside its namespaces has no number here.
    if pid not in (0, 1, os.getpid(), os.getppid()) or uid == 0:
        got("the peer is process", pid, "of user", uid)
    attempt("a handle of the peer", lambda: s.getsockopt(socket.SOL_SOCKET, 77, 4))
    attempt("descriptors of the peer", lambda: s.recvmsg(10, socket.CMSG_SPACE(64), socket.MSG_DONTWAIT)[1] or exec("raise OSError"))
