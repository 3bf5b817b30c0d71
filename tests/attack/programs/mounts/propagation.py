# tries: finds a mount whose changes reach the host, or the other way round
# stopped by: mount_namespace

for line in open("/proc/self/mountinfo"):
    fields = line.split(" - ")[0].split()[6:]
    for field in fields:
        if field.startswith(("shared:", "master:", "propagate_from:")):
            got(field, line)
