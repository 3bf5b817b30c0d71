# tries: makes nodes of the machine's memory, ports and kernel log
# stopped by: user_namespace, mount_flags

import stat
for minor, name in ((1, "mem"), (2, "kmem"), (4, "port"), (11, "kmsg")):
    path = f"/tmp/{name}"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        got("read", name, read(path, 4))
    except OSError:
        pass
