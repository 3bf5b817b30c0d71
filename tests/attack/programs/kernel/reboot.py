# tries: reboots the machine, with numbers that are wrong on purpose
# stopped by: seccomp, user_namespace

if what := passes("reboot", 1, 2, 3, None):
    got("reboot", what)
