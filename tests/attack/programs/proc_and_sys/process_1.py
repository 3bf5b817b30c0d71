# tries: reads and writes memory, descriptors and environment of process 1, which is the host's program
# stopped by: process_1

for leaf in ("environ", "mem", "maps", "smaps", "fd", "fdinfo", "root", "cwd", "exe", "auxv", "stack", "syscall", "personality", "map_files", "ns/mnt", "io", "pagemap", "numa_maps", "timers"):
    path = f"/proc/1/{leaf}"
    look = os.listdir if leaf in ("fd", "map_files") else os.readlink if leaf in ("root", "cwd", "exe", "ns/mnt") else lambda path: read(path, 8) or exec("raise OSError")
    if leaf == "fdinfo":
        look = lambda path: os.listdir(path) or exec("raise OSError")
    attempt(path, look, path)
attempt("wrote its memory", lambda: os.open("/proc/1/mem", os.O_RDWR))
for leaf, value in (("oom_score_adj", b"1000"), ("clear_refs", b"1"), ("comm", b"x"), ("coredump_filter", b"0"), ("timerslack_ns", b"1"), ("attr/current", b"x")):
    attempt(f"wrote {leaf}", lambda: os.write(os.open(f"/proc/1/{leaf}", os.O_WRONLY), value))
