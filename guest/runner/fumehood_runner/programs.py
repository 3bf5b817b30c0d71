"""Programs in other languages, run in a session as children of its interpreter.

They share its files, environment, working directory and output, and nothing else: what one of them leaves running goes on, as
processes that Python code started do.
"""

import os

import _signal

# Private references: user code may have replaced them.
_spawn, _waitpid, _killpg, _exitcode = os.posix_spawn, os.waitpid, os.killpg, os.waitstatus_to_exitcode
_open, _write, _close, _unlink = os.open, os.write, os.close, os.unlink

CANNOT_EXECUTE, NOT_FOUND = 126, 127
"""Exit statuses of a program that could not be started, as shells have them."""

_TO_DEFAULT = (_signal.SIGINT, _signal.SIGPIPE, _signal.SIGXFSZ)


class Program:
    """One program, as the host describes it: `argv`, and `script` with a path and a text if its code is in a file."""

    def __init__(self, argv, script=None):
        self._argv, self._script = argv, script
        self._pid = None
        self._interrupts = 0

    def run(self, write_error, interrupted=False):
        """Run it to its end: its exit status, or minus the number of the signal that ended it. `interrupted`: it is before it begins."""
        self._interrupts = int(interrupted)
        before = _signal.signal(_signal.SIGINT, self._interrupt)
        try:
            try:
                self._write_script()
                self._pid = _spawn(self._argv[0], self._argv, os.environ, setsid=True, setsigdef=_TO_DEFAULT)
            except (OSError, ValueError) as e:
                write_error(f"{self._argv[0]}: {getattr(e, 'strerror', None) or e}\n")
                return NOT_FOUND if isinstance(e, FileNotFoundError) else CANNOT_EXECUTE
            if self._interrupts:
                self._pass_on()
            try:
                return _exitcode(_waitpid(self._pid, 0)[1])
            except ChildProcessError:
                write_error(f"{self._argv[0]}: other code of this session waited for it, so its exit status is not known\n")
                return 1
        finally:
            _signal.signal(_signal.SIGINT, before)

    def _write_script(self):
        if self._script is None:
            return
        path, text = self._script["path"], self._script["text"].encode("utf-8", "surrogatepass")
        try:
            _unlink(path)
        except FileNotFoundError:
            pass
        fd = _open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            while text:
                text = text[_write(fd, text):]
        finally:
            _close(fd)

    def _interrupt(self, _number, _frame):
        self._interrupts += 1
        if self._pid is not None:
            self._pass_on()

    def _pass_on(self):
        # With all that it has started and that has not gone its own way. One that does not heed the first is ended by the next.
        number = _signal.SIGINT if self._interrupts == 1 else _signal.SIGKILL
        try:
            _killpg(self._pid, number)
        except ProcessLookupError:
            pass
