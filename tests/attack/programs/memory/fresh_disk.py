# tries: finds data of others in the room that its disk gives to files
# stopped by: disk

for place in ("/data", "/tmp", "/dev/shm", "/home/sandbox"):
    file = os.open(f"{place}/fresh", os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(file, 0, 8 << 20)
    if os.pread(file, 8 << 20, 0) != bytes(8 << 20):
        got("data in a fresh file in", place)
    os.unlink(f"{place}/fresh")
