# tries: takes leases and exclusive rights on files of the image, on which the host would wait
# stopped by: user_namespace, read_only

import fcntl
for path in ("/usr/bin/env", "/etc/mime.types", "/etc/ld.so.cache"):
    fd = os.open(path, os.O_RDONLY)
    for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK):
        attempt(f"a lease on {path}", lambda: fcntl.fcntl(fd, fcntl.F_SETLEASE, kind))
    attempt(f"notices of changes with signals", lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
