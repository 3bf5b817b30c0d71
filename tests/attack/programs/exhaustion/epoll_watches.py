# tries: waits for so many events that the kernel's room for those of its user is used up
# stopped by: own_uid
# needs: own_uid
# holds: true
# with: {"limits": {"memory_mb": 160, "open_files": 2048}}
# ends: oom_killed, exited

import select
polls, count = [], 0
try:
    files = [os.eventfd(0) for _ in range(400)]
    for _ in range(1000):
        poll = select.epoll()
        polls.append(poll)
        for file in files:
            poll.register(file, 0)
            count += 1
except OSError as error:
    print(count, error.strerror, flush=True)
hold()
