# tries: finds a mount on which setuid programs or devices have effect
# stopped by: mount_flags

for line in open("/proc/self/mountinfo"):
    before, after = line.split(" - ")
    point, flags = before.split()[4], before.split()[5].split(",")
    device = after.split()[0] in ("devtmpfs", "devpts")
    if "nosuid" not in flags:
        got("setuid has effect on", point)
    if "nodev" not in flags and not device:
        got("devices have effect on", point)
    if device and "noexec" not in flags:
        got("programs have effect on", point)
