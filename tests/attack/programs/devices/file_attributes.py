# tries: makes files of the image immutable, or its own so that nobody can remove them
# stopped by: read_only, user_namespace

import fcntl, array
for path in ("/usr/bin/env", sys.executable, "/usr"):
    fd = os.open(path, os.O_RDONLY)
    # FS_IOC_SETFLAGS with the flag for immutable and without any.
    for flags in (0x10, 0):
        attempt(f"set flags {flags:#x} of {path}", lambda: fcntl.ioctl(fd, 0x40086602, array.array("l", [flags]).tobytes()))
own = os.open("/tmp/own", os.O_CREAT | os.O_RDWR)
for flag in (0x10, 0x20):
    attempt("made a file that nobody can remove", lambda: fcntl.ioctl(own, 0x40086602, array.array("l", [flag]).tobytes()))
