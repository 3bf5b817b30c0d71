"""A host in miniature: starts the runner as the real one does and keeps one ordered log of what comes out.

Order rule, as on the real host: when a display or sync arrives, both output pipes are drained before it is placed and
acknowledged.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ZYGOTE = os.path.join(HERE, "..", "zygote.py")
START = os.path.join(HERE, "..", "start.py")
STAND_IN = os.path.join(HERE, "stand_in")
PYTHON = os.environ.get("RUNNER_PYTHON", sys.executable)
EXECUTE, ACK, SETTLE, SHUTDOWN = 1, 2, 3, 4
READY, DISPLAY, SYNC, WARNING, RESULT = 16, 18, 19, 20, 21
DEADLINE_S = 60
KINDS = {READY: "ready", DISPLAY: "display", SYNC: "sync", WARNING: "warning", RESULT: "result"}


def strict(text):
    """Parse JSON as a strict parser does: no NaN, no lone surrogates."""

    def refuse(token):
        raise AssertionError(f"not JSON: {token}")

    value = json.loads(text.decode("utf-8"), parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


class Outcome:
    """What one execution gave."""

    def __init__(self, log, result):
        self.log, self.frame = log, result or {}

    def __getattr__(self, name):
        try:
            return self.frame[name]
        except KeyError:
            raise AttributeError(name) from None

    def _text(self, stream):
        return b"".join(data for kind, data in self.log if kind == stream).decode("utf-8", "replace")

    @property
    def stdout(self):
        return self._text("stdout")

    @property
    def stderr(self):
        return self._text("stderr")

    @property
    def displays(self):
        return [data for kind, data in self.log if kind == "display"]

    @property
    def images(self):
        return [d["mime"]["image/png"] for d in self.displays if "image/png" in d["mime"]]

    @property
    def result_text(self):
        return next(d["mime"]["text/plain"] for d in self.displays if d["metadata"].get("kind") == "result")

    @property
    def merged(self):
        """Text and displays in the order of the host, as [(stream, text)] with neighbours joined."""
        out = []
        for kind, data in self.log:
            if kind not in ("stdout", "stderr", "display"):
                continue
            data = data.decode("utf-8", "replace") if kind != "display" else "+".join(sorted(data["mime"]))
            if out and out[-1][0] == kind and kind != "display":
                out[-1] = (kind, out[-1][1] + data)
            else:
                out.append((kind, data))
        return out


def environment(cwd, extra=None):
    """What the host gives its interpreters. Makes the folder for temporary files, beside the working directory."""
    values = {
        "HOME": "/nonexistent", "PATH": os.defpath, "LANG": "C.UTF-8", "TMPDIR": str(cwd) + "-tmp",
        "MPLCONFIGDIR": "/tmp/fumehood-runner-tests-mpl", "OPENBLAS_NUM_THREADS": "1", "RUST_BACKTRACE": "0",
        **(extra or {}),
    }  # fmt: skip
    os.makedirs(values["TMPDIR"], exist_ok=True)
    return values


class Host:
    """One runner process."""

    def __init__(self, cwd, stdin=b"", env=None, python=PYTHON, start=START, ack=True):
        self._command = [python, "-u", "-B", os.path.abspath(start)]
        self._environment = environment(cwd, env)
        self._open(cwd, stdin, ack)

    def _open(self, cwd, stdin, ack):
        self.ack = ack
        ours, theirs = socket.socketpair()
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        in_r, in_w = os.pipe()
        self.began = time.monotonic()
        self.process = self._start(cwd, (in_r, out_w, err_w, theirs.fileno()))
        for fd in (in_r, out_w, err_w):
            os.close(fd)
        theirs.close()
        os.write(in_w, stdin) if stdin else None
        os.close(in_w)
        self.control, self.pipes = ours, {out_r: "stdout", err_r: "stderr"}
        self.buffer = bytearray()
        self.log = []
        self.frames = []
        self.ready = self.wait_for(READY)
        self.start_seconds = time.monotonic() - self.began

    def _start(self, cwd, fds):
        def descriptors():
            # Copies out of the way first: any of them may already be one of the targets.
            high = [os.dup(fd) for fd in fds]
            high = [fd if fd > 9 else __import__("fcntl").fcntl(fd, 0, 10) for fd in high]
            for target, fd in enumerate(high):
                os.dup2(fd, target)

        return subprocess.Popen(
            self._command, cwd=cwd, env=self._environment, preexec_fn=descriptors,
            pass_fds=(3,), start_new_session=True, stdin=fds[0], stdout=fds[1], stderr=fds[2],
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.control.close()
        for fd in list(self.pipes):
            os.close(fd)
        self.pipes = {}

    def send(self, kind, payload):
        body = json.dumps(payload).encode()
        self.control.sendall(len(body).to_bytes(4, "big") + bytes([kind]) + body)

    def drain(self):
        """Read whatever the output pipes hold now."""
        while True:
            ready, _, _ = select.select(list(self.pipes), [], [], 0)
            if not ready:
                return
            for fd in ready:
                self._read_pipe(fd)

    def _read_pipe(self, fd):
        data = os.read(fd, 1 << 16)
        if data:
            self.log.append((self.pipes[fd], data))
        else:
            os.close(fd)
            del self.pipes[fd]

    def pump(self, timeout):
        """Handle one round of readiness; False if nothing came in time."""
        ready, _, _ = select.select([self.control, *self.pipes], [], [], timeout)
        for fd in ready:
            if fd is not self.control:
                if fd in self.pipes:
                    self._read_pipe(fd)
        if self.control in ready:
            data = self.control.recv(1 << 20)
            if not data:
                raise EOFError("the runner closed its control socket")
            self.buffer += data
            self._take_frames()
        return bool(ready)

    def _take_frames(self):
        while len(self.buffer) >= 5:
            size = int.from_bytes(self.buffer[:4], "big")
            if len(self.buffer) < 5 + size:
                return
            kind, payload = self.buffer[4], strict(bytes(self.buffer[5 : 5 + size]))
            del self.buffer[: 5 + size]
            if kind in (DISPLAY, SYNC, RESULT):
                self.drain()
            self.frames.append((kind, payload))
            self.log.append((KINDS[kind], payload))
            if kind in (DISPLAY, SYNC) and self.ack:
                self.send(ACK, {"seq": payload["seq"]})

    def wait_for(self, kind, deadline_s=DEADLINE_S):
        """The next frame of a kind."""
        end = time.monotonic() + deadline_s
        while True:
            for n, (k, payload) in enumerate(self.frames):
                if k == kind:
                    del self.frames[: n + 1]
                    return payload
            if time.monotonic() > end:
                raise TimeoutError(f"no {KINDS[kind]} frame; log so far: {self.log[-20:]}")
            self.pump(0.5)

    def wait_for_output(self, text, deadline_s=DEADLINE_S):
        """Until standard output holds `text`."""
        end = time.monotonic() + deadline_s
        while text not in Outcome(self.log, None).stdout:
            if time.monotonic() > end:
                raise TimeoutError(f"no {text!r} in {self.log[-20:]}")
            self.pump(0.5)

    def begin(self, code, **fields):
        """Send an execute request and return at once."""
        self.log = []
        request = {
            "version": 1, "id": "exe_1", "code": code, "filename": "<code>", "mode": "cell", "has_input": False,
            "input": None, "result_var": None, "preview_rows": 10, "network": False, "max_variables": 100,
            "max_result_bytes": 1_000_000, "max_display_bytes": 16_000_000, **fields,
        }  # fmt: skip
        self.send(EXECUTE, request)

    def finish(self, deadline_s=DEADLINE_S):
        """Wait for the result."""
        result = self.wait_for(RESULT, deadline_s)
        return Outcome(self.log, result)

    def cell(self, code, **fields):
        """One execution in a session."""
        self.begin(code, **fields)
        return self.finish()

    def script(self, code, **fields):
        """One execution in a fresh sandbox, to the end of the process."""
        self.begin(code, **{"mode": "script", **fields})
        outcome = self.finish()
        self.wait_exit()
        outcome.status = self.process.returncode
        return outcome

    def wait_exit(self, deadline_s=DEADLINE_S):
        """Until the process has ended; output after that is read too."""
        self.process.wait(deadline_s)
        self.drain()
        return self.process.returncode

    def run_to_exit(self, code, deadline_s=DEADLINE_S, **fields):
        """A script that may end without a result."""
        self.begin(code, **{"mode": "script", **fields})
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            try:
                self.pump(0.2)
            except (EOFError, ConnectionResetError):
                break
        self.process.wait(max(0.1, end - time.monotonic()))
        self.drain()
        result = next((p for k, p in self.frames if k == RESULT), None)
        outcome = Outcome(self.log, result)
        outcome.status = self.process.returncode
        return outcome


class Zygote:
    """A preloaded interpreter, with a stand-in for the native library. One child at a time."""

    def __init__(self, cwd, modules=(), env=None):
        values = environment(cwd, env)
        values["PYTHONPATH"] = os.pathsep.join(filter(None, (STAND_IN, values.get("PYTHONPATH"))))
        self.control, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()
        with theirs:
            self.process = subprocess.Popen(
                [PYTHON, "-u", "-B", os.path.abspath(ZYGOTE), "stand-in", str(theirs.fileno()), *modules],
                cwd=cwd, env=values, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stderr=self._errors,
            )  # fmt: skip
        self.is_ready = self.control.recv(1) == b"R"

    def errors(self):
        """What it wrote to standard error."""
        self._errors.seek(0)
        return self._errors.read().decode()

    def fork(self, cwd, fds):
        """A child with these standard streams and control socket."""
        socket.send_fds(self.control, [os.fsencode(cwd)], list(fds))
        return Child(self.control)

    def close(self):
        self.control.close()
        self.process.wait(DEADLINE_S)
        self._errors.close()


class Child:
    """A child of a zygote, to be used like a subprocess.Popen."""

    def __init__(self, control):
        self._control = control
        self.pid = self._number()
        self.returncode = None

    def _number(self):
        return int.from_bytes(self._control.recv(4, socket.MSG_WAITALL), sys.byteorder, signed=True)

    def poll(self):
        if self.returncode is None and select.select([self._control], [], [], 0)[0]:
            self.returncode = os.waitstatus_to_exitcode(self._number())
        return self.returncode

    def wait(self, timeout=DEADLINE_S):
        if self.returncode is None and not select.select([self._control], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("child of the zygote", timeout)
        return self.poll()


class ForkedHost(Host):
    """A runner forked from a zygote. Standard input may be an open file."""

    def __init__(self, zygote, cwd, stdin=b""):
        self._zygote = zygote
        self._file = None if isinstance(stdin, bytes) else stdin
        self._open(cwd, b"" if self._file else stdin, ack=True)

    def _start(self, cwd, fds):
        return self._zygote.fork(cwd, (self._file.fileno() if self._file else fds[0], *fds[1:]))
