# tries: climbs out of its root with dots, from every folder and descriptor
# stopped by: mount_namespace

up = "../" * 64
for start in ("/", "/data", "/tmp", "/usr/lib", "/dev/shm", "/proc/self", "/proc/self/fd"):
    attempt(f"climbed from {start}", read, f"{start}/{up}{FACTS.readable.lstrip('/')}")
    folder = os.open(start, os.O_RDONLY)
    attempt(f"climbed from a descriptor of {start}", lambda: os.open(up + FACTS.readable.lstrip("/"), os.O_RDONLY, dir_fd=folder))
    os.fchdir(folder)
    for _ in range(64):
        os.chdir("..")
    attempt(f"walked out of {start}", read, FACTS.readable.lstrip("/"))
    os.close(folder)
