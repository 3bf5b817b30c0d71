# tries: reads the kernel's memory as a core file
# stopped by: covered_proc, user_namespace

for path in ("/proc/kcore", "/proc/vmcore", "/proc/kpagecgroup"):
    attempt(f"read {path}", lambda: read(path, 64) or exec("raise OSError"))
