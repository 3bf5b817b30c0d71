# tries: finds that it shares a pid, ipc, network, mount, user or cgroup namespace with the host
# stopped by: user_namespace

# Each has a program of its own for the layer that can be switched off.
for kind in ("mnt", "user", "uts", "cgroup"):
    own = os.readlink(f"/proc/self/ns/{kind}")
    if own == FACTS.namespaces[kind]:
        got("the host's", kind, own)
