# tries: finds a mount of the image or the root that is not read-only
# stopped by: read_only

disk = {"/data", "/tmp", "/var/tmp", "/home/sandbox", "/dev/shm", "/dev/pts", "/proc"}
for line in open("/proc/self/mountinfo"):
    before, after = line.split(" - ")
    point, flags = before.split()[4], before.split()[5].split(",")
    if point not in disk and after.split()[0] not in ("devtmpfs", "proc") and "ro" not in flags:
        got("writable", point, line.strip())
if not os.statvfs("/").f_flag & os.ST_RDONLY:
    got("the root is writable")
