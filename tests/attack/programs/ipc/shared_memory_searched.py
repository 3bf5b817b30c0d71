# tries: finds shared memory of anybody by asking for every number
# stopped by: ipc_namespace

buffer = _ctypes.create_string_buffer(512)
# SHM_STAT_ANY needs no rights to a segment.
for number in range(64):
    for command in (13, 15):
        attempt(f"shared memory {number}", lambda: syscall("shmctl", number, command, buffer))
