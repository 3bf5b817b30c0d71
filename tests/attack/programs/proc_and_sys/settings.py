# tries: writes settings of the kernel that hold for the whole machine
# stopped by: covered_proc, user_namespace

for name in ("kernel/core_pattern", "kernel/modprobe", "kernel/hotplug", "kernel/randomize_va_space", "kernel/yama/ptrace_scope", "kernel/sysrq", "kernel/panic", "kernel/unprivileged_bpf_disabled",
             "vm/overcommit_memory", "vm/drop_caches", "vm/panic_on_oom", "vm/mmap_min_addr", "fs/suid_dumpable", "fs/protected_symlinks", "fs/file-max", "fs/inotify/max_user_watches", "fs/pipe-user-pages-soft"):
    path = "/proc/sys/" + name
    try:
        # What is there already, so that nothing changes if it works.
        value = read(path)
    except OSError:
        value = b"0"
    attempt(f"wrote {path}", lambda: os.write(os.open(path, os.O_WRONLY), value))
