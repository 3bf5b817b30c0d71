# tries: sends signals that say they come from the kernel or from somebody else
# stopped by: process_1, pid_namespace

class Info(_ctypes.Structure):
    _fields_ = [("signal", _ctypes.c_int), ("error", _ctypes.c_int), ("code", _ctypes.c_int), ("rest", _ctypes.c_char * 116)]

for pid in (FACTS.pid, FACTS.command_pid, 1):
    for code in (-6, -1, 0x80, 0):
        info = Info(10, 0, code, b"")
        if code in (-6, 0x80, 0) and pid == 1 or pid != 1:
            attempt(f"a forged signal to {pid}", lambda: syscall("rt_sigqueueinfo", pid, 10, _ctypes.byref(info)))
