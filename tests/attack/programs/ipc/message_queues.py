# tries: leaves a queue of messages where another sandbox, or its successor, finds it
# stopped by: ipc_namespace, landlock

name = b"/fumehood-attack-" + str(FACTS.command_pid).encode()
# Two of these run after each other in different sandboxes; the second must not find what the first has left.
found = _libc.mq_open(name, os.O_RDWR)
if found >= 0:
    got("a queue that another sandbox has made")
    _libc.mq_unlink(name)
else:
    _libc.mq_open(name, os.O_RDWR | os.O_CREAT, 0o666, None)
