# tries: finds a file system of the host mounted whole, or writable, or with its folders above
# stopped by: mount_namespace

own = {"tmpfs", "proc", "devpts"}
for line in open("/proc/self/mountinfo"):
    before, after = line.split(" - ")
    _, _, _, root, point, flags = before.split()[:6]
    kind = after.split()[0]
    if kind in own or kind == "devtmpfs":
        continue
    if root == "/" and point == "/":
        got("the host's root", line)
    if "ro" not in flags.split(","):
        got("writable", line)
