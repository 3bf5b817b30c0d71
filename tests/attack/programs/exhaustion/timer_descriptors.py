# tries: takes all descriptors of timers, events and polls
# stopped by: rlimits
# holds: true

import select
taken = []
for make in (lambda: syscall("timerfd_create", 1, 0), lambda: syscall("eventfd2", 0, 0), lambda: select.epoll().detach() if hasattr(select.epoll, "detach") else os.dup(select.epoll().fileno())):
    try:
        for _ in range(30000):
            taken.append(make())
    except OSError:
        pass
if len(taken) > 4096:
    got(len(taken), "descriptors")
hold()
