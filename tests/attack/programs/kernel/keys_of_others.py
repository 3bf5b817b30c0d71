# tries: finds keys of the user and of the session that started the service
# stopped by: seccomp

for ring in (-3, -4, -5):
    if what := passes("keyctl", 0, _ctypes.c_int(ring), 0, 0, 0):
        got("keyring", ring, what)
if what := passes("request_key", b"user", b"fumehood-attack", None, _ctypes.c_int(-3)):
    got("request_key", what)
