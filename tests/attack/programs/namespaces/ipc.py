# tries: finds that it shares the ipc namespace of the host
# stopped by: ipc_namespace

if os.readlink("/proc/self/ns/ipc") == FACTS.namespaces.ipc:
    got("the host's ipc namespace")
