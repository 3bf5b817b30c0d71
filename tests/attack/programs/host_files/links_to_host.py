# tries: reads and writes files of the host through symbolic links that it makes
# stopped by: mount_namespace
# like: CVE-2024-28185

for place in ("/data", "/tmp", "/var/tmp", "/home/sandbox", "/dev/shm"):
    for number, target in enumerate((FACTS.readable, FACTS.writable, "/proc/1/root" + FACTS.readable, "../" * 20 + FACTS.readable.lstrip("/"))):
        link = f"{place}/link{number}"
        os.symlink(target, link)
        attempt(f"read {target}", read, link)
        attempt(f"wrote {target}", lambda: open(link, "r+b").write(b"x"))
        os.unlink(link)
