# tries: finds a session keyring that somebody else has too
# stopped by: keyring, seccomp

try:
    ring = syscall("keyctl", 0, _ctypes.c_int(-3), 0, 0, 0)
    buffer = _ctypes.create_string_buffer(4096)
    # KEYCTL_DESCRIBE tells its owner, KEYCTL_READ what is in it.
    syscall("keyctl", 6, ring, buffer, 4096, 0)
    owner = buffer.value.decode().split(";")
    if owner[1] not in ("1000", str(os.getuid())):
        got("the session keyring of", owner)
except OSError:
    pass
