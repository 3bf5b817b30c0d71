# tries: makes folders in folders without end, on which programs of the host stumble
# stopped by: disk, cgroup
# ends: disk_limit, oom_killed, exited
# with: {"limits": {"disk_mb": 8, "memory_mb": 128}, "collect": ["**"]}

os.chdir("/data")
depth = 0
try:
    while depth < 20000:
        os.mkdir("d" * 100)
        os.chdir("d" * 100)
        depth += 1
except OSError:
    pass
open("leaf", "w").close() if depth < 20000 else got(depth, "folders deep")
