# tries: reads and writes the memory of a process that has the same user
# stopped by: seccomp

import subprocess
child = subprocess.Popen(["sleep", "60"])
start = int(open(f"/proc/{child.pid}/maps").read().split("-")[0], 16) if os.path.exists(f"/proc/{child.pid}/maps") else 0
buffer = _ctypes.create_string_buffer(16)

class Vector(_ctypes.Structure):
    _fields_ = [("base", _ctypes.c_void_p), ("length", _ctypes.c_size_t)]

near, far = Vector(_ctypes.addressof(buffer), 16), Vector(start, 16)
for name in ("process_vm_readv", "process_vm_writev"):
    for pid in (child.pid, 1):
        attempt(f"{name} {pid}", lambda: syscall(name, pid, _ctypes.byref(near), 1, _ctypes.byref(far), 1, 0))
if what := passes("process_madvise", os.pidfd_open(child.pid), _ctypes.byref(far), 1, 4, 0):
    got("process_madvise", what)
child.kill()
