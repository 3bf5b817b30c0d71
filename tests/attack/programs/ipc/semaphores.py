# tries: changes and blocks semaphores of the host and of a neighbour
# stopped by: ipc_namespace

class Operation(_ctypes.Structure):
    _fields_ = [("number", _ctypes.c_ushort), ("change", _ctypes.c_short), ("flags", _ctypes.c_short)]

if FACTS.sem is not None:
    attempt("changed", lambda: syscall("semop", FACTS.sem, _ctypes.byref(Operation(0, 1, 0o4000)), 1))
if _libc.semget(FACTS.neighbour.key, 0, 0) >= 0:
    got("the neighbour's semaphores")
for number in range(64):
    attempt(f"semaphores {number}", lambda: syscall("semctl", number, 0, 20, _ctypes.create_string_buffer(512)))
