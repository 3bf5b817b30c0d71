# tries: takes more memory than it may have
# stopped by: cgroup
# ends: oom_killed
# with: {"limits": {"memory_mb": 96}}

blocks = []
for number in range(40):
    blocks.append(bytearray(os.urandom(4096) * 1024))
    if number * 4 > 100:
        got(number * 4, "MiB where 96 are allowed")
        break
