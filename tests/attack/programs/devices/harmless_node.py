# tries: makes a node of a harmless device, the first step to any other
# stopped by: user_namespace

import stat
try:
    os.mknod("/tmp/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    got("a device node")
    open("/tmp/null", "wb").write(b"x")
    got("a device node that works")
except OSError:
    pass
