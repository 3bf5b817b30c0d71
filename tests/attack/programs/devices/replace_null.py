# tries: puts a link where /dev/null was, for whoever writes there with more rights
# stopped by: read_only, user_namespace
# like: CVE-2025-31133

for name in ("null", "ptmx", "tty", "fd", "stdout"):
    path = f"/dev/{name}"
    attempt(f"removed {path}", os.unlink, path)
    attempt(f"renamed {path}", os.rename, path, path + ".old")
    attempt(f"linked over {path}", lambda: (os.symlink("/proc/sys/kernel/core_pattern", "/tmp/l"), os.replace("/tmp/l", path)))
attempt("made a file in /dev", lambda: open("/dev/made", "x"))
attempt("changed the mode of /dev/null", os.chmod, "/dev/null", 0o600)
