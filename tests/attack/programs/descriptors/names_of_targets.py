# tries: learns paths of the host from where its descriptors lead
# stopped by: descriptors, mount_namespace

for number in os.listdir("/proc/self/fd"):
    try:
        target = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        continue
    if "fumehood-attack" in target or target.startswith(("/var/lib", "/root", "/run", "/etc")):
        got(number, target)
for name in os.listdir("/proc/self/map_files") if os.access("/proc/self/map_files", os.R_OK) else ():
    try:
        target = os.readlink("/proc/self/map_files/" + name)
    except OSError:
        continue
    if "/images/" in target or target.startswith(("/var/lib", "/root")):
        got("mapped", target)
