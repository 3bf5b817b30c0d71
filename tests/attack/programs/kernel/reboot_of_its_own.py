# tries: reboots its own pid namespace, which ends process 1
# stopped by: seccomp, capabilities

# Caps lock off at Ctrl-Alt-Del: changes nothing anywhere.
if what := passes("reboot", 0xFEE1DEAD, 672274793, 0, None):
    got("reboot", what)
