# tries: takes all the notification handles of its user, so that others get none
# stopped by: rlimits
# holds: true

taken = []
try:
    while True:
        taken.append(syscall("inotify_init1", 0))
except OSError as error:
    print(len(taken), error.strerror, flush=True)
hold()
