# tries: makes namespaces of every other kind
# stopped by: seccomp, capabilities

for name, flag in (("mnt", 0x20000), ("cgroup", 0x2000000), ("uts", 0x4000000), ("ipc", 0x8000000), ("pid", 0x20000000), ("net", 0x40000000), ("time", 0x80)):
    child = os.fork()
    if child == 0:
        if what := passes("unshare", flag):
            got("unshare", name, what)
        os._exit(0)
    os.waitpid(child, 0)
