# tries: takes memory by files on its disk, in /dev/shm and in files without a name
# stopped by: cgroup
# ends: oom_killed
# with: {"limits": {"memory_mb": 96, "disk_mb": 1024}}

block = os.urandom(4096) * 256
files = [open("/data/big", "wb"), open("/dev/shm/big", "wb"), os.fdopen(os.memfd_create("big"), "wb")]
for number in range(40):
    for file in files:
        try:
            file.write(block)
            file.flush()
        except OSError:
            pass
    if number * 3 > 110:
        got(number * 3, "MiB where 96 are allowed")
        break
