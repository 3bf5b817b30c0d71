# tries: registers a binary format, which the kernel would run with the host's rights
# stopped by: covered_proc, mount_namespace, user_namespace

for path in ("/proc/sys/fs/binfmt_misc/register", "/proc/sys/fs/binfmt_misc/status"):
    attempt(f"wrote {path}", lambda: os.write(os.open(path, os.O_WRONLY), b":x:M::xx::/tmp/x:F"))
