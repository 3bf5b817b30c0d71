# tries: puts keys into keyrings of the kernel, where others find them
# stopped by: seccomp

# KEY_SPEC: thread, process, session, user and user session keyrings.
for ring in (-1, -2, -3, -4, -5):
    if what := passes("add_key", b"user", b"fumehood-attack", b"x", 1, _ctypes.c_int(ring)):
        got("a key in keyring", ring, what)
