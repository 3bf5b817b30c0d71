# tries: walks from its mount namespace to the next one of the machine
# stopped by: user_namespace

import fcntl
fd = os.open("/proc/self/ns/mnt", os.O_RDONLY)
for request in (0x8010B70B, 0x8010B70C):
    for _ in range(3):
        attempt(f"another mount namespace by {request:#x}", lambda: fcntl.ioctl(fd, request, bytes(16)))
