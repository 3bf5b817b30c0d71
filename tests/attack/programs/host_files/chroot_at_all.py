# tries: changes its root folder, with which setuid programs and the loader are deceived
# stopped by: seccomp, capabilities

what = passes("chroot", b"/tmp")
if what:
    got("chroot", what)
