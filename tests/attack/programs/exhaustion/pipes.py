# tries: takes all the memory that a user may have in pipes, so that those of others shrink
# stopped by: own_uid
# needs: own_uid
# holds: true

import fcntl
ends = []
total = 0
try:
    while True:
        ends.append(os.pipe())
        for size in (1 << 20, 1 << 16):
            try:
                total += fcntl.fcntl(ends[-1][1], 1031, size)
                break
            except OSError:
                pass
        os.set_blocking(ends[-1][1], False)
        os.write(ends[-1][1], bytes(1 << 16))
except OSError as error:
    print(len(ends), total, error.strerror, flush=True)
hold()
