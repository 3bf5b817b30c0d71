# tries: empties or poisons the machine's random numbers
# stopped by: user_namespace

import fcntl
for device in ("/dev/random", "/dev/urandom"):
    fd = os.open(device, os.O_RDWR)
    # RNDZAPENTCNT, RNDCLEARPOOL, RNDRESEEDCRNG; adding credit for nothing.
    for request in (0x5204, 0x5206, 0x5207):
        attempt(f"ioctl {request:#x} on {device}", lambda: fcntl.ioctl(fd, request))
    attempt("added entropy", lambda: fcntl.ioctl(fd, 0x40085203, bytes(8)))
