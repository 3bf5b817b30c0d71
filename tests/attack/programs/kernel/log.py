# tries: reads and clears the log of the kernel
# stopped by: seccomp

# The size of the buffer, which the kernel tells everybody where it is not restricted; then its end.
buffer = _ctypes.create_string_buffer(4096)
for action in (10, 9, 3):
    if what := passes("syslog", action, buffer, 4096):
        got("syslog", action, what)
