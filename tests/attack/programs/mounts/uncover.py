# tries: takes away what covers parts of /proc
# stopped by: seccomp, capabilities
# like: CVE-2025-31133

for place in (b"/proc/kcore", b"/proc/keys", b"/proc/kallsyms", b"/proc/sys", b"/proc/timer_list", b"/proc", b"/"):
    if not os.path.exists(place):
        continue
    for flags in (0, 2, 8):
        what = passes("umount2", place, flags)
        if what:
            got("unmounted", place, what)
