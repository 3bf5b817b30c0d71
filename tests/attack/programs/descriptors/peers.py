# tries: learns from its sockets who is at the other end, and uses the handle of that process which they give
# stopped by: pid_namespace, user_namespace

import fcntl, signal, socket, stat, struct
for number in range(64):
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            continue
        s = socket.socket(fileno=number)
        pid, uid, gid = struct.unpack("iII", s.getsockopt(socket.SOL_SOCKET, 17, 12))
    except OSError:
        continue
    # A peer outside its namespaces has no number here.
    if pid not in (0, 1, os.getpid(), os.getppid()) or uid == 0:
        got("the peer is process", pid, "of user", uid)
    attempt("descriptors that the peer has sent", lambda: s.recvmsg(10, socket.CMSG_SPACE(64), socket.MSG_DONTWAIT | socket.MSG_PEEK)[1] or exec("raise OSError"))
    try:
        # SO_PEERPIDFD: the kernel gives it to whoever asks.
        handle = struct.unpack("i", s.getsockopt(socket.SOL_SOCKET, 77, 4))[0]
    except OSError:
        s.detach()
        continue
    attempt("a signal to the peer", signal.pidfd_send_signal, handle, 0)
    attempt("a descriptor of the peer", lambda: syscall("pidfd_getfd", handle, 0, 0))
    attempt("the namespaces of the peer", lambda: syscall("setns", handle, 0x20000))
    for request in range(1, 11):
        attempt(f"namespace {request} of the peer", fcntl.ioctl, handle, 0xFF00 | request, 0)
    try:
        # PIDFD_GET_INFO: the kernel's struct begins with what is asked for; the number of the process stands at 16.
        info = fcntl.ioctl(handle, 0xC040FF0B, struct.pack("Q", 1) + bytes(56))
        if struct.unpack_from("I", info, 16)[0]:
            got("the number of the peer", info)
    except OSError:
        pass
    s.detach()
