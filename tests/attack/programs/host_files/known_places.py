# tries: looks into the places where hosts keep accounts, keys, logs and state
# stopped by: mount_namespace
# like: judge0#564

for path in (
    "/root", "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/machine-id", "/etc/fstab", "/etc/resolv.conf", "/etc/environment",
    "/var/lib", "/var/log", "/var/run/secrets", "/var/spool/cron", "/run/systemd", "/run/secrets", "/boot", "/srv", "/lost+found", "/media",
    "/home/ubuntu", "/home/ec2-user", "/opt/google", "/host", "/rootfs", "/mnt/host", "/.dockerenv", "/sys", "/kubepods",
):
    if os.path.isdir(path):
        found = attempt(f"listed {path}", lambda: os.listdir(path) or exec("raise OSError"))
    else:
        attempt(f"read {path}", read, path, 64)
