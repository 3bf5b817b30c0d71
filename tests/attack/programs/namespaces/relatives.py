# tries: gets descriptors of namespaces above its own, by asking those that it has
# stopped by: user_namespace, pid_namespace

import fcntl
# NS_GET_USERNS gives the own one at most; NS_GET_PARENT must give nothing.
for kind in ("user", "pid"):
    fd = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
    attempt(f"the parent of its {kind} namespace", lambda: fcntl.ioctl(fd, 0xB702))
for kind in ("mnt", "net", "ipc", "uts", "pid", "cgroup"):
    fd = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
    try:
        owner = fcntl.ioctl(fd, 0xB701)
    except OSError:
        continue
    if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
        got("a user namespace that is not its own, by", kind)
