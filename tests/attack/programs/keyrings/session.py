# tries: reads a key of the host's from the keyring of the session in which the service was started
# stopped by: keyring, seccomp
# needs: fact key

try:
    found = syscall("keyctl", 10, _ctypes.c_int(-3), b"user", b"fumehood-attack", 0)
    buffer = _ctypes.create_string_buffer(4096)
    length = syscall("keyctl", 11, found, buffer, 4096, 0)
    got("a key of the host", buffer.raw[:length])
except OSError:
    pass
