# tries: makes read-only mounts writable
# stopped by: seccomp, capabilities

for place in (b"/", b"/usr", b"/proc/sys", b"/proc/irq", b"/dev/null", b"/etc/fonts"):
    # Remount, and remount of the bind alone.
    for flags in (32, 32 | 4096):
        what = passes("mount", None, place, None, flags, None)
        if what:
            got("remounted", place, what)
