# tries: reads the names of everything in the kernel
# stopped by: covered_proc

for path in ("/proc/kallsyms", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/timer_list"):
    attempt(f"read {path}", lambda: read(path, 64) or exec("raise OSError"))
