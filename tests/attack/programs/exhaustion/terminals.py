# tries: takes all terminals of the machine
# stopped by: rlimits, mount_namespace
# holds: true

taken = []
try:
    while len(taken) < 3000:
        taken.append(os.openpty())
except OSError as error:
    print(len(taken), error.strerror, flush=True)
if len(taken) > 1024:
    got(len(taken), "terminals")
hold()
