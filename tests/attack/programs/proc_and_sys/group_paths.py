# tries: learns from its control groups where and under what service it runs
# stopped by: cgroup_namespace

for path in ("/proc/self/cgroup", "/proc/1/cgroup"):
    for line in open(path):
        _, _, group = line.strip().split(":", 2)
        if group != "/" and not group.startswith("/.."):
            got(path, line.strip())
        # A path above the root tells how deep it is, and names of others.
        if "fumehood" in group or "system" in group:
            got("a name", line.strip())
