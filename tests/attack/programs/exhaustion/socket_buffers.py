# tries: has the kernel keep memory for what is sent and never received
# stopped by: cgroup
# holds: true
# ends: oom_killed, exited
# with: {"limits": {"memory_mb": 96}}

import socket
pairs, total = [], 0
try:
    while total < 150 << 20:
        a, b = socket.socketpair()
        a.setblocking(False)
        pairs.append((a, b))
        try:
            while total < 150 << 20:
                total += a.send(bytes(65536))
        except BlockingIOError:
            pass
except OSError as error:
    print(len(pairs), total, flush=True)
if total > 110 << 20:
    got(total >> 20, "MiB in sockets where 96 are allowed")
hold()
