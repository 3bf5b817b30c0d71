# tries: makes a user and a mount namespace of its own, where it may mount what it likes
# stopped by: seccomp, rlimits
# like: CVE-2022-0185, CVE-2022-0492

child = os.fork()
if child == 0:
    try:
        syscall("unshare", 0x10000000 | 0x20000)
        got("a user namespace with all rights in it")
        syscall("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None)
        got("mounted in it")
    except OSError:
        pass
    os._exit(0)
os.waitpid(child, 0)
