# tries: reads the lists of the keys that users of the host have
# stopped by: covered_proc

for path in ("/proc/keys", "/proc/key-users"):
    attempt(f"read {path}", lambda: read(path, 64) or exec("raise OSError"))
