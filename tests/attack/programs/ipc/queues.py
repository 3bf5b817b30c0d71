# tries: reads and writes message queues of the host and of a neighbour
# stopped by: ipc_namespace

class Message(_ctypes.Structure):
    _fields_ = [("kind", _ctypes.c_long), ("text", _ctypes.c_char * 16)]

numbers = [FACTS.msg] if FACTS.msg is not None else []
found = _libc.msgget(FACTS.neighbour.key, 0)
if found >= 0:
    got("the neighbour's queue")
for number in numbers:
    attempt("sent", lambda: syscall("msgsnd", number, _ctypes.byref(Message(1, b"x")), 16, 0o4000))
    attempt("received", lambda: syscall("msgrcv", number, _ctypes.byref(Message()), 16, 0, 0o4000))
for number in range(64):
    attempt(f"queue {number}", lambda: syscall("msgctl", number, 13, _ctypes.create_string_buffer(512)))
