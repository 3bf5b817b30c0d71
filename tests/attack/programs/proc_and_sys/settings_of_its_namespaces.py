# tries: writes the settings that belong to its own namespaces, with code of the kernel behind them
# stopped by: covered_proc, user_namespace

import glob
for pattern in ("net/ipv4/*", "net/ipv6/conf/*/*", "net/core/*", "net/netfilter/*", "kernel/sh*", "kernel/msg*", "kernel/sem", "fs/mqueue/*", "user/*", "kernel/ns_last_pid", "kernel/hostname", "kernel/domainname"):
    for path in glob.glob("/proc/sys/" + pattern):
        if os.path.isfile(path):
            try:
                value = read(path)
                os.write(os.open(path, os.O_WRONLY), value)
                got("wrote", path)
            except OSError:
                pass
