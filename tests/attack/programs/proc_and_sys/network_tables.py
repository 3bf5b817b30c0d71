# tries: reads connections and listeners of the host in /proc/net
# stopped by: network_namespace

for table in ("tcp", "tcp6", "udp", "udp6"):
    try:
        lines = open(f"/proc/net/{table}").read().splitlines()[1:]
    except OSError:
        continue
    if any(int(line.split()[1].rsplit(":", 1)[1], 16) in (FACTS.port, FACTS.port6, FACTS.api_port, FACTS.udp_port) for line in lines):
        got("the host's sockets in", table)
if FACTS.abstract in open("/proc/net/unix").read():
    got("the host's unix sockets")
routes = open("/proc/net/route").read().splitlines()[1:]
if routes:
    got("routes", routes)
