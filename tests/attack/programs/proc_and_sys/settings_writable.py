# tries: finds the settings of the kernel mounted writable
# stopped by: covered_proc

for path in ("/proc/sys", "/proc/sys/kernel", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/sysrq-trigger", "/proc/acpi"):
    if os.path.exists(path) and not os.statvfs(path).f_flag & os.ST_RDONLY:
        got(path, "is writable")
