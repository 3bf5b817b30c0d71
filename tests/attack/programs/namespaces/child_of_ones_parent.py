# tries: makes children of the process that started it, which does not expect them
# stopped by: seccomp

CLONE_PARENT = 0x8000
for flags in (CLONE_PARENT | 17, CLONE_PARENT | 0x100000000 | 17, CLONE_PARENT | 0):
    try:
        child = syscall("clone", flags, None, None, None, None)
    except OSError:
        continue
    if child == 0:
        os._exit(0)
    got("a child that its parent has to reap", hex(flags))
