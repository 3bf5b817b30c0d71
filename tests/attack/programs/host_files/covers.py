# tries: puts something of its own over files that every program trusts
# stopped by: read_only, landlock, user_namespace

for path in ("/etc/passwd", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ld.so.preload", "/etc/ld.so.cache", "/usr/bin/env", "/bin", "/lib64", "/etc/profile", "/etc/gitconfig"):
    attempt(f"replaced {path}", lambda: (open("/tmp/new", "w").close(), os.replace("/tmp/new", path)))
    attempt(f"removed {path}", os.unlink, path)
    attempt(f"renamed {path}", os.rename, path, "/tmp/old")
    attempt(f"wrote {path}", lambda: open(path, "a"))
    attempt(f"linked {path}", os.link, path, "/data/hard")
    attempt(f"changed the mode of {path}", os.chmod, path, 0o777)
    attempt(f"changed the times of {path}", os.utime, path, (0, 0))
