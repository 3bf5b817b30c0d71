# tries: signals every number that a process of another sandbox could have
# stopped by: pid_namespace, user_namespace

own = {1, os.getpid(), os.getppid()}
for pid in [*range(2, 33000), FACTS.pid, FACTS.command_pid]:
    if pid in own:
        continue
    try:
        os.kill(pid, 0)
        got("there is a process", pid)
    except OSError:
        pass
