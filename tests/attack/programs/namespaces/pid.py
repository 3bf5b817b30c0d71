# tries: finds that it shares the pid namespace of the host
# stopped by: pid_namespace

for kind in ("pid", "pid_for_children"):
    if os.readlink(f"/proc/self/ns/{kind}") == FACTS.namespaces[kind]:
        got("the host's", kind)
