# tries: lists mounts outside its own root by the calls that need no /proc
# stopped by: mount_namespace

class Request(_ctypes.Structure):
    _fields_ = [("size", _ctypes.c_uint32), ("spare", _ctypes.c_uint32), ("id", _ctypes.c_uint64), ("param", _ctypes.c_uint64), ("ns", _ctypes.c_uint64)]

ids = (_ctypes.c_uint64 * 4096)()
request = Request(32, 0, 2**64 - 1, 0, 0)
try:
    count = syscall("listmount", _ctypes.byref(request), ids, 4096, 0)
except OSError:
    count = 0
seen = len(open("/proc/self/mountinfo").readlines())
if count > seen + 1:
    got(count, "mounts where", seen, "are its own")
# Of other mount namespaces, by their numbers.
for namespace in range(1, 64):
    request = Request(32, 0, 2**64 - 1, 0, namespace)
    attempt(f"listed mounts of namespace {namespace}", lambda: syscall("listmount", _ctypes.byref(request), ids, 4096, 0) or exec("raise OSError"))
