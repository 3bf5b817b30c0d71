# tries: loads and unloads modules of the kernel
# stopped by: seccomp, user_namespace

file = os.open("/usr/bin/env", os.O_RDONLY)
for name, arguments in (("init_module", (b"x", 1, b"")), ("finit_module", (file, b"", 0)), ("delete_module", (b"no_such_module", 0o4000))):
    if what := passes(name, *arguments):
        got(name, what)
