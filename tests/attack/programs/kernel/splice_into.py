# tries: copies into files of the image without writing: sendfile, splice, copy ranges, clones, punching holes
# stopped by: read_only, user_namespace

import fcntl
target = os.open("/usr/bin/env", os.O_RDONLY)
source = os.open("/tmp/source", os.O_RDWR | os.O_CREAT)
os.write(source, b"x" * 4096)
attempt("sendfile", os.sendfile, target, source, 0, 10)
attempt("a range", lambda: os.copy_file_range(source, target, 10, 0, 0))
attempt("a clone", lambda: fcntl.ioctl(target, 0x40049409, source))
attempt("a shorter file", os.ftruncate, target, 1)
attempt("a shorter file by path", os.truncate, "/usr/bin/env", 1)
attempt("room", os.posix_fallocate, target, 0, 10)
attempt("an exchange of extents", lambda: fcntl.ioctl(target, 0xC0185879, bytes(24)))
attempt("an attribute", os.setxattr, "/usr/bin/env", "user.x", b"x")
