# tries: reads accounts of the host in passwd and group
# stopped by: mount_namespace

for path in ("/etc/passwd", "/etc/group"):
    lines = read(path).decode().splitlines()
    strangers = [line for line in lines if line.split(":")[2] not in ("0", "1000", "65534")]
    if strangers:
        got(path, strangers)
import pwd
for uid in range(1, 1000):
    try:
        got("an account", pwd.getpwuid(uid))
    except KeyError:
        pass
