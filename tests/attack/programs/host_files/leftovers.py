# tries: finds what a sandbox before it has left in the places where everybody writes
# stopped by: mount_namespace

own = {"uploads", "outputs", "datasets", "shared", ".cache", ".config", ".ipython", ".local", ".npm"}
for place in ("/data", "/tmp", "/var/tmp", "/dev/shm", "/home/sandbox", "/dev/mqueue", "/run", "/mnt"):
    try:
        left = set(os.listdir(place)) - own
    except OSError:
        continue
    for name in left:
        # What the interpreter itself makes is of this uid and this minute.
        about = os.lstat(os.path.join(place, name))
        if (place, name) != ("/mnt", "data") and (about.st_uid != os.getuid() or place in ("/dev/mqueue", "/run", "/mnt")):
            got(place, name)
        else:
            for secret in secrets_in(read(os.path.join(place, name))) if os.path.isfile(os.path.join(place, name)) else []:
                got(place, name, secret)
