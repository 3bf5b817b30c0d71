"""Frames on the control socket.

User code runs in the same thread: its signal handlers, destructors and other threads may call back into the wire in
the middle of anything. Three rules keep the byte stream whole:

* bytes move only while every signal is blocked, so no handler can abandon half a frame;
* a send that re-enters another send only queues its frame, and the outer one writes it;
* waiting happens in `poll`, which holds no state, so an exception raised there loses nothing.

A wire is made closed, and opened on a descriptor in the process that is to use it: a preloaded interpreter makes it before
the fork. Frames belong to the process that opened it. A child forked later closes its copy, and on a closed wire every
call is a no-op.
"""

import collections
import json
import os
import select
import sys
import threading

# The C modules: `signal` turns every number into an enum, which costs more than the system call, and `socket` takes long to load.
import _signal
import _socket

EXECUTE, ACK, SETTLE, SHUTDOWN = 1, 2, 3, 4
READY, DISPLAY, SYNC, WARNING, RESULT = 16, 18, 19, 20, 21

EXIT_CONTROL_LOST = 70
"""Exit status when the control socket is gone: nobody is left to report to."""

_HEADER = 5
_READ_SIZE = 1 << 16
# At most one descriptor comes beside a frame.
_BESIDE_SIZE = _socket.CMSG_SPACE(4)
_BESIDE = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
# Blocking a signal that the processor raises would only turn a clear crash into an obscure one.
_BLOCKABLE = frozenset(_signal.valid_signals()) - {
    _signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL, _signal.SIGKILL, _signal.SIGSTOP
}

# Made at import: user code may replace anything in these modules.
_getpid, _os_write, _os_close, _os_exit = os.getpid, os.write, os.close, os._exit
to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""A JSON value as text, without spaces; NaN is a ValueError."""
_from_json = json.JSONDecoder().raw_decode


def encode_text(text):
    """UTF-8 of `text`; surrogate pairs are joined, lone surrogates become U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def encode_frame(kind, payload):
    """One frame as bytes. `payload` must be plain JSON without NaN."""
    body = encode_text(to_json(payload))
    return len(body).to_bytes(4, "big") + bytes((kind,)) + body


class Wire:
    """The guest's end of the control socket."""

    def __init__(self):
        self._fd = -1
        self._socket = None
        self._pid = None
        self._lock = threading.RLock()
        self._sending = False
        self._waiting = False
        self._outbox = collections.deque()
        self._later = b""
        self._inbox = collections.deque()
        self._received = bytearray()
        self._sequence = 0
        self._acked = 0
        self.descriptors = collections.deque()
        """Those that came beside frames and were not yet taken."""
        self._poll = select.poll()
        self.attached = False
        """True during an execution: only then does the host expect displays and syncs."""
        os.register_at_fork(after_in_child=self._abandon)

    def open(self, fd):
        """Use the socket `fd`, in this process."""
        self._fd, self._pid = fd, _getpid()
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        self._poll.register(fd, select.POLLIN)
        os.set_inheritable(fd, False)

    def close(self):
        """Closed and forgetful, as it was made; the descriptor belongs to the caller."""
        self._poll.unregister(self._fd)
        self._socket.detach()
        self._fd, self._pid, self._socket = -1, None, None
        self._sequence = self._acked = 0
        self._received.clear()
        self._inbox.clear()
        self._later = b""
        self.attached = False

    @property
    def ours(self):
        """False in a forked child, also one forked below Python."""
        return self._fd >= 0 and _getpid() == self._pid

    def send(self, kind, payload):
        """Send one frame, whole."""
        if self.ours:
            self._push(encode_frame(kind, payload))

    def send_later(self, kind, payload):
        """Send one frame together with the next one, which comes soon; nobody is told when it has arrived."""
        if self.attached and self.ours:
            self._later += encode_frame(kind, {"seq": 0, **payload})

    @property
    def has_later(self):
        """True while a frame waits for the next one: what is printed now would come before it."""
        return bool(self._later)

    def send_and_wait(self, kind, payload):
        """Send a frame with a sequence number and wait until the host has read everything written before it."""
        if not (self.attached and self.ours):
            return
        with self._lock:
            self._sequence += 1
            sequence = self._sequence
            self._push(encode_frame(kind, {"seq": sequence, **payload}))
            if self._waiting or self._sending:
                # Called from a signal handler or destructor inside a wait: its acknowledgement is consumed by the outer
                # wait. Waiting here too could take the outer's bytes and leave it waiting for ever.
                return
            self._waiting = True
            try:
                while self._acked < sequence:
                    self._poll.poll()
                    self._pull()
            finally:
                self._waiting = False

    def receive(self):
        """Wait for the next (kind, payload) that is not an acknowledgement."""
        while not self._inbox:
            # The lock is not held while idle: a background thread may be inside a send.
            self._poll.poll()
            with self._lock:
                if not self._inbox and self._poll.poll(0):
                    self._pull()
        return self._inbox.popleft()

    def _push(self, frame):
        with self._lock:
            self._outbox.append(frame)
            if self._sending:
                return
            blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, _BLOCKABLE)
            self._sending = True
            try:
                while self._outbox:
                    later, self._later = self._later, b""
                    self._write(later + self._outbox.popleft())
            except BaseException:
                # Half a frame may be out; nothing sent after it could be understood.
                _os_exit(EXIT_CONTROL_LOST)
            finally:
                self._sending = False
                _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)

    def _write(self, frame):
        view = memoryview(frame)
        while view:
            try:
                view = view[_os_write(self._fd, view):]
            except BlockingIOError:
                select.select([], [self._fd], [])

    def _pull(self):
        blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, _BLOCKABLE)
        try:
            data, beside, _, _ = self._socket.recvmsg(_READ_SIZE, _BESIDE_SIZE, _socket.MSG_CMSG_CLOEXEC)
            for level, kind, content in beside:
                if (level, kind) == _BESIDE and len(content) >= 4:
                    self.descriptors.append(int.from_bytes(content[:4], sys.byteorder))
            if not data:
                _os_exit(EXIT_CONTROL_LOST)
            self._received += data
            self._take_frames()
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            _os_exit(EXIT_CONTROL_LOST)
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)

    def _take_frames(self):
        buffer = self._received
        while len(buffer) >= _HEADER:
            end = _HEADER + int.from_bytes(buffer[:4], "big")
            if len(buffer) < end:
                return
            kind, payload = buffer[4], _from_json(buffer[_HEADER:end].decode())[0]
            del buffer[:end]
            if kind == ACK:
                self._acked = max(self._acked, payload.get("seq", 0))
            else:
                self._inbox.append((kind, payload))

    def _abandon(self):
        fd, self._fd = self._fd, -1
        held, self._socket = self._socket, None
        if held is not None:
            held.detach()
        if fd >= 0:
            try:
                _os_close(fd)
            except OSError:
                pass
