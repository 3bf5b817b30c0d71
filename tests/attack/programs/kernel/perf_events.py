# tries: counts what other programs and the kernel do
# stopped by: seccomp

# PERF_TYPE_SOFTWARE, the processor's clock, of this process without the kernel.
attributes = (_ctypes.c_uint32 * 32)(1, 128, 0)
attributes[10] = 0x61
for target in (0, -1):
    if what := passes("perf_event_open", attributes, _ctypes.c_int(target), _ctypes.c_int(-1 if target == 0 else 0), _ctypes.c_int(-1), 0):
        got("perf events", target, what)
