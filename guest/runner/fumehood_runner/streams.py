"""Standard streams: unbuffered text on descriptors 0, 1 and 2, in an order the host can see.

Each stream alone is exact, because every write reaches its pipe at once. Across the two output pipes the host sees
only who was readable first, so before a write the runner asks the host to catch up (`sync`) when output changes stream,
when the other pipe still holds bytes, for example from a child process, or when a child is about to start. A budget keeps programs that alternate
on every line fast: beyond it no sync is sent and only the order across streams becomes approximate.
"""

import fcntl
import io
import os
import select
import stat
import sys
import time

from . import wire as wire_module

# Private reference: user code may replace it in os.
_os_write = os.write
_FIONREAD = 0x541B
_ZERO = bytes(4)


class SyncBudget:
    """A token bucket: `burst` at once, `rate` a second after that."""

    def __init__(self, burst=200, rate=500, clock=time.monotonic):
        self._burst, self._rate, self._clock = burst, rate, clock
        self._tokens, self._at = burst, clock()

    def take(self):
        """True if one more sync may be sent now."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class StreamOrder:
    """Decides before each write whether the host must catch up first."""

    def __init__(self, wire):
        self._wire = wire
        self._last = 0
        self._budget = SyncBudget()

    def before_write(self, fd):
        """Called with 1 or 2, in any thread."""
        switched = self._last not in (0, fd)
        self._last = fd
        if self._wire.has_later:
            # A display that is still to be sent was made before this.
            self._wire.send_and_wait(wire_module.SYNC, {})
            return
        if not (switched or _has_unread(3 - fd)):
            return
        if self._wire.attached and self._wire.ours and self._budget.take():
            self._wire.send_and_wait(wire_module.SYNC, {})

    def before_child(self):
        """Called before a process starts: what this one has written comes before what that one writes."""
        if not (_has_unread(1) or _has_unread(2) or self._wire.has_later):
            return
        if self._wire.attached and self._wire.ours and self._budget.take():
            self._wire.send_and_wait(wire_module.SYNC, {})

    def start(self):
        """A new execution: the host has read everything of the previous one."""
        self._last = 0


def _is_pipe(fd):
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False


def _has_unread(fd, ioctl=fcntl.ioctl):
    try:
        return ioctl(fd, _FIONREAD, _ZERO) != _ZERO
    except OSError:
        return False


# Audit events of everything that starts a process.
_STARTS_PROCESS = frozenset(
    ("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "pty.spawn")
)


def _watch_children(order):
    def hook(event, arguments, starts=_STARTS_PROCESS):
        if event in starts:
            order.before_child()

    sys.addaudithook(hook)


class OutputPipe(io.RawIOBase):
    """The binary layer below sys.stdout and sys.stderr: writes everything at once, never closes its descriptor."""

    mode = "wb"

    def __init__(self, fd, name, order):
        self._fd = fd
        self._order = order
        self.name = name

    def fileno(self):
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._fd

    def writable(self):
        return True

    def write(self, data):
        if self.closed:
            raise ValueError("write to closed file")
        self._order.before_write(self._fd)
        view = memoryview(data)
        if view.itemsize != 1 or view.ndim != 1:
            view = view.cast("B")
        total = len(view)
        while view:
            try:
                view = view[_os_write(self._fd, view):]
            except BlockingIOError:
                # User code made the pipe non-blocking; output must not be lost for that.
                select.select([], [self._fd], [])
        return total


class Streams:
    """Makes the standard streams, and makes them again for a later execution."""

    def __init__(self, wire):
        self._order = StreamOrder(wire)
        _watch_children(self._order)
        self._out = self._err = self._in = None
        self._in_is_assumed = False
        self._given = False
        self.install_outputs()

    def install(self):
        """Point sys.stdin, sys.stdout and sys.stderr at descriptors 0, 1 and 2 whatever user code did to them."""
        self._order.start()
        if self._in is None or self._in.closed or (self._in_is_assumed and not _is_pipe(0)):
            raw = io.FileIO(0, "r", closefd=False)
            self._in = io.TextIOWrapper(io.BufferedReader(raw), "utf-8", "surrogateescape")
        self._in_is_assumed = False
        sys.stdin = sys.__stdin__ = self._in
        self.install_outputs()

    def give_input(self, text):
        """Put `text` on descriptor 0, then end of file, for one execution of a session. What an earlier one left there is gone.

        A program of its own has a pipe of the host's there; that is left alone as long as no text comes with an execution.
        """
        if not text and not self._given:
            return
        self._given = bool(text)
        fd = os.memfd_create("stdin")
        try:
            rest = memoryview(wire_module.encode_text(text))
            while rest:
                rest = rest[_os_write(fd, rest):]
            os.lseek(fd, 0, os.SEEK_SET)
        finally:
            self._put_on_0(fd)

    def give_pipe(self, fd):
        """The same with a pipe, into which the host writes while the execution runs."""
        self._given = True
        self._put_on_0(fd)

    def _put_on_0(self, fd):
        if fd == 0:
            # User code had closed it, so that this got its number.
            os.set_inheritable(0, True)
        else:
            os.dup2(fd, 0)
            os.close(fd)
        self._in, self._in_is_assumed = None, False

    def forget(self):
        """After a rehearsal on an empty pipe: descriptor 0 will be another one, most likely a pipe too.

        The object for it remembers only that. Nothing else stands for it now, so that a child need not take it apart.
        """
        self._in_is_assumed = True
        sys.stdin = sys.__stdin__ = None
        self._order.start()

    def install_outputs(self):
        """The two that do not depend on what the descriptors are: a module imported ahead may keep them."""
        # A lone surrogate becomes "?": printing what one has must not be an error.
        self._out = self._usable(self._out, 1, "<stdout>", "replace")
        self._err = self._usable(self._err, 2, "<stderr>", "backslashreplace")
        sys.stdout = sys.__stdout__ = self._out
        sys.stderr = sys.__stderr__ = self._err

    def _usable(self, stream, fd, name, errors):
        if stream is not None:
            try:
                if not stream.closed and stream.write_through and stream.encoding == "utf-8":
                    return stream
            except ValueError:
                pass  # the user detached its buffer
        return io.TextIOWrapper(OutputPipe(fd, name, self._order), "utf-8", errors, newline="\n", write_through=True)

    def flush(self):
        """Flush whatever the user left in place of the standard streams."""
        for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None), self._out, self._err):
            try:
                stream.flush()
            except Exception:
                pass  # closed, replaced by anything, or its pipe is gone

    def write_error(self, text):
        """Write the runner's own text (a traceback) to descriptor 2, wherever sys.stderr points now."""
        self.flush()
        self._order.before_write(2)
        data = memoryview(wire_module.encode_text(text))
        try:
            while data:
                data = data[_os_write(2, data):]
        except OSError:
            pass  # user code closed it
