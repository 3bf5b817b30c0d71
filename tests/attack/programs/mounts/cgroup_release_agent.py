# tries: mounts a control group hierarchy and names a program that the host runs when a group is empty
# stopped by: seccomp, capabilities, mount_namespace
# like: CVE-2022-0492

os.makedirs("/tmp/group", exist_ok=True)
for kind, options in ((b"cgroup", b"rdma"), (b"cgroup", b"memory"), (b"cgroup2", None)):
    try:
        syscall("mount", b"none", b"/tmp/group", kind, 0, options)
        got("a control group hierarchy", os.listdir("/tmp/group"))
    except OSError:
        pass
for path in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory/release_agent", "/proc/1/root/sys/fs/cgroup"):
    if os.path.exists(path):
        got(path)
