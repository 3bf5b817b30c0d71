# tries: makes sets of semaphores without end, memory of the kernel
# stopped by: cgroup
# ends: oom_killed, exited
# holds: true
# with: {"limits": {"memory_mb": 96}}

sets = []
for _ in range(20000):
    one = _libc.semget(0, 2000, 0o1600)
    if one < 0:
        break
    sets.append(one)
    if len(sets) * 2000 * 64 > 110 << 20:
        got(len(sets), "sets")
        break
print(len(sets), flush=True)
for one in sets if FACTS.namespaces.ipc == os.readlink("/proc/self/ns/ipc") else ():
    _libc.semctl(one, 0, 0, 0)
hold()
