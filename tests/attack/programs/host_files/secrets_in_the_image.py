# tries: searches every file outside /usr and its libraries for secrets of others
# stopped by: mount_namespace, environment

roots = [os.path.join("/", name) for name in os.listdir("/") if name not in ("proc", "usr", "bin", "sbin", "lib", "lib64", "lib32", "libx32", "dev", "opt", "workspace")]
for root in [*roots, "/opt/fumehood", "/dev/shm", "/usr/local/etc", "/usr/local/bin"]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 1 << 20:
                    for secret in secrets_in(read(path, 1 << 20)):
                        got(path, secret)
            except OSError:
                pass
