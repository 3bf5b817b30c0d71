# tries: gets namespaces of other processes by descriptors of them
# stopped by: pid_namespace, process_1

import fcntl
for pid in [1, FACTS.pid, FACTS.command_pid]:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        continue
    for number in range(1, 11):
        attempt(f"namespace {number} of process {pid}", lambda: fcntl.ioctl(fd, 0xFF00 | number, 0))
