# tries: connects to sockets of the host by their paths: its own, those of container engines, buses and databases
# stopped by: mount_namespace
# like: CVE-2019-5736

import socket
for path in (FACTS.socket, FACTS.neighbour.path, "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock", "/run/dbus/system_bus_socket",
             "/run/systemd/private", "/run/systemd/journal/socket", "/run/systemd/notify", "/dev/log", "/run/snapd.socket", "/run/postgresql/.s.PGSQL.5432", "/var/run/mysqld/mysqld.sock", "/run/redis/redis.sock", "/run/lxd.socket", "/tmp/.X11-unix/X0"):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as s:
            attempt(f"connected to {path}", s.connect, path)
