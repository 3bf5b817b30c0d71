# tries: finds /sys, where devices, firmware and control groups are set
# stopped by: mount_namespace

for path in ("/sys", "/sys/kernel", "/sys/fs/cgroup", "/sys/class", "/sys/firmware", "/sys/kernel/debug", "/sys/kernel/security", "/proc/self/root/sys"):
    attempt(f"listed {path}", os.listdir, path)
