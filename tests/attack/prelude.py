import ctypes as _ctypes, errno, json as _json, os, platform as _platform, re as _re, sys

class _Facts(dict):
    __getattr__ = dict.get

FACTS = _json.loads(FACTS_AS_TEXT, object_hook=_Facts)
X86 = _platform.machine() == "x86_64"
# Numbers of system calls: x86_64, and the table that newer architectures share.
_NUMBERS = {
    "open": (2, None), "openat": (257, 56), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "clone": (56, 220), "clone3": (435, 435), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "kcmp": (312, 272), "migrate_pages": (256, 238), "move_pages": (279, 239), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "fanotify_init": (300, 262), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116), "vhangup": (153, 58), "sethostname": (170, 161), "setdomainname": (171, 162),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "personality": (135, 92),
    "swapon": (167, 224), "swapoff": (168, 225), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "open_tree": (428, 428), "move_mount": (429, 429), "mount_setattr": (442, 442), "lookup_dcookie": (212, 18), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "execveat": (322, 281), "ioprio_set": (251, 30), "sched_setattr": (314, 274), "sched_setaffinity": (203, 122),
    "set_mempolicy": (238, 237), "landlock_create_ruleset": (444, 444), "landlock_restrict_self": (446, 446), "seccomp": (317, 277),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "mq_open": (240, 180), "mq_unlink": (241, 181), "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27), "timer_create": (222, 107), "timerfd_create": (283, 85), "eventfd2": (290, 19), "rt_sigqueueinfo": (129, 138),
    "prlimit64": (302, 261), "get_robust_list": (274, 100), "mseal": (462, 462), "statmount": (457, 457), "listmount": (458, 458),
    "mincore": (27, 232), "syscall_beyond": (470, 470), "setxattr": (188, 5), "mknodat": (259, 33), "fchmodat": (268, 53), "capset": (126, 91),
    "nfsservctl": (180, 42), "uselib": (134, None), "mbind": (237, 235), "sched_setscheduler": (144, 119), "vmsplice": (278, 75), "splice": (275, 76),
    "waitid": (247, 95), "openat2": (437, 437), "prctl": (157, 167), "remap_file_pages": (216, 234), "mlock": (149, 228), "mlockall": (151, 230),
}
_libc = _ctypes.CDLL(None, use_errno=True)


def got(*what):
    """Says what the attack got; everything else is silence."""
    os.write(1, ("GOT " + " ".join(str(part) for part in what)).replace("\n", "\\n").encode(errors="replace")[:4000] + b"\n")


def cannot(why):
    """Ends an attack that this host gives nothing to try on."""
    os.write(1, f"CANNOT {why}\n".encode())
    os._exit(0)


def hold():
    """Says that all is taken, and keeps it."""
    import time

    os.write(1, b"HOLD\n")
    time.sleep(60)


def syscall(name, *arguments):
    """The result of a raw system call; OSError when it fails."""
    number = _NUMBERS[name][0 if X86 else 1] if isinstance(name, str) else name
    if number is None:
        raise OSError(errno.ENOSYS, "not on this architecture")
    _ctypes.set_errno(0)
    result = _libc.syscall(_ctypes.c_long(number), *(a if isinstance(a, (bytes, _ctypes._SimpleCData, _ctypes.Array, _ctypes.Structure)) or hasattr(a, "_obj") else _ctypes.c_long(a or 0) for a in arguments))
    if result == -1:
        raise OSError(_ctypes.get_errno(), os.strerror(_ctypes.get_errno()))
    return result


def attempt(what, do, *arguments):
    """Does something that must fail with an error of the system; what it returns is a catch."""
    try:
        result = do(*arguments)
    except (OSError, ValueError, OverflowError, PermissionError):
        return None
    got(what, "" if result is None else repr(result)[:300])
    return result


def passes(name, *arguments):
    """Whether a raw system call gets past all that forbids it: it succeeds, or fails for its arguments."""
    try:
        return f"returned {syscall(name, *arguments)}"
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOSPC):
            return None
        return f"failed only for its arguments: {error.strerror}"


def secrets_in(text):
    """Secrets of others in some text."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    own = os.environ.get("OWN_SECRET", "none")
    return [found for found in set(_re.findall(FACTS.secrets + "[0-9a-f]{32}", text)) if found != own]


def others():
    """Processes in sight that are not of this sandbox: neither this one, nor process 1, nor one that it started."""
    own = {1, os.getpid()}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in own:
            yield int(name)


def read(path, size=1 << 16):
    with open(path, "rb") as file:
        return file.read(size)


def done():
    os.write(1, b"DONE\n")

