# tries: leaves its root by the old way: chroot into a folder, then climb
# stopped by: seccomp, capabilities, mount_namespace

os.makedirs("/tmp/deeper", exist_ok=True)
outside = os.open("/", os.O_RDONLY)
try:
    syscall("chroot", b"/tmp/deeper")
except OSError:
    pass
else:
    os.fchdir(outside)
    for _ in range(100):
        os.chdir("..")
    try:
        syscall("chroot", b".")
    except OSError:
        pass
    attempt("left its root", read, FACTS.readable)
