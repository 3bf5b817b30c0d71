# tries: becomes a file system itself, which holds up whoever looks at it
# stopped by: mount_namespace

attempt("opened /dev/fuse", lambda: os.open("/dev/fuse", os.O_RDWR))
attempt("opened /dev/cuse", lambda: os.open("/dev/cuse", os.O_RDWR))
