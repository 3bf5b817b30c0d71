"""An innocent customer's session: secrets and things that can be broken, and whether all of it is as it was."""

import hashlib, os, select, signal, socket, subprocess, threading, time, tempfile, ctypes

_secret = os.environ["NEIGHBOUR"]
_libc = ctypes.CDLL(None, use_errno=True)
_places = ["/data/secret", "/tmp/secret", "/var/tmp/secret", "/dev/shm/secret", "/home/sandbox/secret"]
for _place in _places:
    with open(_place, "w") as _file:
        _file.write(_secret)
    os.chmod(_place, 0o666)
os.chmod("/data", 0o777)
os.chmod("/home/sandbox", 0o777)

_noted = []
for _signal in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGIO, signal.SIGALRM, signal.SIGWINCH):
    signal.signal(_signal, lambda number, frame: _noted.append(f"got signal {number}"))

# A process with the secret in its arguments and environment, which must live on.
_child = subprocess.Popen(["sleep", "100000"], env={"CHILD": _secret}, start_new_session=True)

_tcp = socket.create_server(("127.0.0.1", 0))
_udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
_udp.bind(("127.0.0.1", 0))
_abstract = socket.socket(socket.AF_UNIX)
_abstract.bind("\0fumehood-neighbour")
_abstract.listen()
_path = socket.socket(socket.AF_UNIX)
_path.bind("/tmp/neighbour")
_path.listen()
os.chmod("/tmp/neighbour", 0o777)
_listeners = [_tcp, _udp, _abstract, _path]


def _listen():
    while True:
        for ready in select.select(_listeners, [], [])[0]:
            if ready is _udp:
                _noted.append(f"heard {ready.recv(100)!r}")
            else:
                ready.accept()[0].close()
                _noted.append(f"was connected to by {ready.getsockname()}")


threading.Thread(target=_listen, daemon=True).start()

# A System V segment and a message queue that everybody may use, as far as rights go.
_KEY = 0x666D6873
_IPC_CREAT, _RMID = 0o1000, 0
_libc.shmat.restype = ctypes.c_void_p
_shm = _libc.shmget(_KEY, 4096, _IPC_CREAT | 0o666)
_memory = _libc.shmat(_shm, None, 0)
ctypes.memmove(_memory, _secret.encode(), len(_secret))
_queue = _libc.msgget(_KEY, _IPC_CREAT | 0o666)
_semaphore = _libc.semget(_KEY, 1, _IPC_CREAT | 0o666)


def _removed():
    import atexit

    # Only matters where the namespace is switched off: then they would stay on the host.
    atexit.register(lambda: (_libc.shmctl(_shm, _RMID, None), _libc.msgctl(_queue, _RMID, None), _libc.semctl(_semaphore, 0, _RMID, 0)))


_removed()


def _can(what, do):
    begun = time.monotonic()
    try:
        do()
    except Exception as error:
        return [f"can no longer {what}: {error!r}"]
    took = time.monotonic() - begun
    # Far above what a busy machine takes.
    return [f"needed {took:.0f} s to {what}"] if took > 10 else []


def _work():
    hashlib.sha256(bytes(1 << 20)).hexdigest()


def _call(name, *arguments):
    result = getattr(_libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _inotify():
    fd = _call("inotify_init1", 0)
    try:
        _call("inotify_add_watch", fd, b"/tmp", 0x100)
    finally:
        os.close(fd)


def _poll():
    ends = os.pipe()
    try:
        with select.epoll() as poll:
            poll.register(ends[0])
    finally:
        os.close(ends[0]), os.close(ends[1])


def _pipe():
    ends = os.pipe()
    try:
        # A pipe of a user with too many pages in pipes has one page.
        os.set_blocking(ends[1], False)
        if os.write(ends[1], bytes(65536)) != 65536:
            raise OSError("a pipe holds less than it did")
    finally:
        os.close(ends[0]), os.close(ends[1])


def _signal():
    got = []
    before = signal.signal(signal.SIGUSR2, lambda *_: got.append(1))
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        time.sleep(0)
        if not got:
            raise OSError("a signal did not come")
    finally:
        signal.signal(signal.SIGUSR2, before)


def _thread():
    thread = threading.Thread(target=_work)
    thread.start()
    thread.join(20)


def _timer():
    signal.setitimer(signal.ITIMER_VIRTUAL, 1000)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _lock():
    buffer = ctypes.create_string_buffer(65536)
    _call("mlock", buffer, 65536)
    _call("munlock", buffer, 65536)


def complaints():
    """What is not as it was, or cannot be done any more."""
    found = list(_noted)
    _noted.clear()
    for place in _places:
        try:
            with open(place) as file:
                if file.read() != _secret:
                    found.append(f"{place} was changed")
        except OSError as error:
            found.append(f"{place} is lost: {error}")
    if os.environ.get("NEIGHBOUR") != _secret:
        found.append("its environment was changed")
    if ctypes.string_at(_memory, len(_secret)) != _secret.encode():
        found.append("its shared memory was changed")
    if _child.poll() is not None:
        found.append(f"its process was ended: {_child.returncode}")
    if set(os.listdir("/data")) - {"secret", "uploads", "outputs", "datasets", "shared"}:
        found.append(f"new files in its workspace: {os.listdir('/data')}")
    for what, do in (
        ("compute", _work),
        ("start a program", lambda: subprocess.run(["true"], check=True, timeout=20)),
        ("start a thread", _thread),
        ("write a file", lambda: tempfile.TemporaryFile().write(bytes(1 << 20))),
        ("watch a folder", _inotify),
        ("make a pipe", _pipe),
        ("get a signal", _signal),
        ("set a timer", _timer),
        ("lock memory", _lock),
        ("open a terminal", lambda: [os.close(end) for end in os.openpty()]),
        ("wait for events", _poll),
        ("talk to itself", lambda: [end.close() for end in socket.socketpair()]),
    ):
        found += _can(what, do)
    return found


{
    "key": _KEY,
    "abstract": "fumehood-neighbour",
    "port": _tcp.getsockname()[1],
    "udp_port": _udp.getsockname()[1],
    "path": "/tmp/neighbour",
    "places": _places,
}
