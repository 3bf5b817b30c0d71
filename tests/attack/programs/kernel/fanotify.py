# tries: watches every file of a whole file system, the host's included
# stopped by: seccomp

for flags in (0, 0x200, 4, 0x600):
    if what := passes("fanotify_init", flags, 0):
        got("fanotify", hex(flags), what)
