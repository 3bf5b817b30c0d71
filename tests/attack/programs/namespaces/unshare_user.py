# tries: makes a user namespace, in which it has every right
# stopped by: seccomp, rlimits
# like: CVE-2022-0185

child = os.fork()
if child == 0:
    if what := passes("unshare", 0x10000000):
        got("unshare of the user namespace", what)
    os._exit(0)
os.waitpid(child, 0)
