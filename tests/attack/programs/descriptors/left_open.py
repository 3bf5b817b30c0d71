# tries: finds descriptors left open beside its own pipes and its control socket
# stopped by: descriptors
# like: CVE-2024-21626

import stat
for number in range(3, 1024):
    try:
        about = os.fstat(number)
        target = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        continue
    # Of its own interpreter: anonymous ones, its own disk, and files that Python itself has open.
    if target.startswith(("anon_inode:", "/data", "/tmp", "/dev/null", "/dev/urandom", "/opt", "/usr", "/home/sandbox")):
        if stat.S_ISDIR(about.st_mode) or not target.startswith(("/opt", "/usr")):
            if target.startswith("anon_inode:") or stat.S_ISREG(about.st_mode) or stat.S_ISCHR(about.st_mode):
                continue
            got(number, target)
        continue
    if stat.S_ISSOCK(about.st_mode) and number == 3 or target.startswith(("socket:", "pipe:")):
        continue
    got(number, target)
