"""Programs that a preloaded interpreter runs before it forks, so that no child has to be the first.

They go the whole way, from an execute frame to a result frame, on a socket and pipes of their own. What they warm: caches,
regular expressions, lazy imports, and the interpreter's specialised bytecode, whose counters would else be written in every child,
on pages that have to be copied for it. What they leave behind is undone: a child looks as if nothing had run.
"""

import contextlib
import dataclasses
import json
import linecache
import os
import socket
import sys
import warnings

from . import text, wire
from .execute import Request

_READ_SIZE = 1 << 20


@dataclasses.dataclass
class WarmUp:
    """One program, run if all of `needs` are loaded; `why` says what a child saves."""

    needs: tuple
    why: str
    code: str
    times: int = 2


# No program may start a thread, set an option, or import what its user has not asked for.
WARM_UPS = (
    WarmUp((), "the runner's own way, often enough for the interpreter to specialise it", "print('x')\n1 + 1", 40),
)


def rehearse(runner, report):
    """Run every warm-up whose modules are loaded; `report(line)` tells of those that fail."""
    with _scratch_descriptors() as output, _undone():
        for warm_up in WARM_UPS:
            if all(name in sys.modules for name in warm_up.needs):
                _repeat(runner, warm_up, output, report)


def _repeat(runner, warm_up, output, report):
    for _ in range(warm_up.times):
        try:
            error = _play(runner, warm_up.code)
        except Exception as e:
            error = {"type": text.class_name(e), "message": text.message_of(e)}
        with contextlib.suppress(BlockingIOError):
            os.read(output, _READ_SIZE)
        if error is not None:
            report(f"a warm-up failed ({warm_up.why}): {error['type']}: {error['message']}")
            return


def _play(runner, code):
    """The error of one program, run as the first one of a child, or None."""
    here = list(sys.path)
    host, guest = socket.socketpair()
    with host, guest:
        runner.attach(guest.fileno())
        try:
            # Acknowledged before it is sent: nobody could answer while the program runs.
            host.sendall(wire.encode_frame(wire.ACK, {"seq": 1_000}))
            host.sendall(wire.encode_frame(wire.EXECUTE, {"id": "exe_1", "code": code, "mode": "cell"}))
            runner.execute(runner.wire.receive()[1])
        finally:
            runner.detach()
            sys.path[:] = here
        return _last_frame(host)["error"]


def _last_frame(host):
    data = host.recv(_READ_SIZE)
    while len(data) > (end := 5 + int.from_bytes(data[:4], "big")):
        data = data[end:]
    return json.loads(data[5:])


@contextlib.contextmanager
def _scratch_descriptors():
    """0, 1 and 2 are pipes, as in a sandbox, and then what they were. Gives the end where output can be read."""
    kept = [os.dup(fd) for fd in range(3)]
    output, written = os.pipe()
    nothing, closed = os.pipe()
    os.close(closed)
    os.set_blocking(output, False)
    try:
        for fd, scratch in enumerate((nothing, written, written)):
            os.dup2(scratch, fd)
        yield output
    finally:
        for fd, old in enumerate(kept):
            os.dup2(old, fd)
        for fd in (*kept, output, written, nothing):
            os.close(fd)


@contextlib.contextmanager
def _undone():
    """What a program of the user's changes in the interpreter is as it was."""
    kept = {name: getattr(sys, name) for name in ("argv", "stdin", "__stdin__")}
    main, lines = sys.modules["__main__"], dict(linecache.cache)
    warned = [namespace for namespace in _namespaces() if "__warningregistry__" in namespace]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, value in kept.items():
            setattr(sys, name, value)
        sys.modules["__main__"] = main
        linecache.cache.clear()
        linecache.cache.update(lines)
        for namespace in _namespaces():
            if not any(namespace is w for w in warned):
                namespace.pop("__warningregistry__", None)


def _namespaces():
    candidates = (getattr(module, "__dict__", None) for module in list(sys.modules.values()))
    return [namespace for namespace in candidates if type(namespace) is dict]
