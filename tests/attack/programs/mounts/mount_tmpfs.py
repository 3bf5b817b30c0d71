# tries: mounts a file system without limits over a folder of its own
# stopped by: seccomp, capabilities

for kind in (b"tmpfs", b"proc", b"sysfs", b"devpts", b"mqueue", b"cgroup2", b"ramfs", b"devtmpfs", b"debugfs", b"securityfs"):
    what = passes("mount", kind, b"/tmp", kind, 0, None)
    if what:
        got("mount", kind, what)
