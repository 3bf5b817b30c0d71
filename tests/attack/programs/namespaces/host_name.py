# tries: learns the name of the host
# stopped by: uts_namespace

import socket
for name in (socket.gethostname(), os.uname().nodename, read("/proc/sys/kernel/hostname").decode().strip(), read("/etc/hostname").decode().strip()):
    if name == FACTS.host_name and name != "sandbox":
        got("the name of the host", name)
