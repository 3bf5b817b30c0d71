"""The process around the user's code: signals, forked children, exit codes, the end."""

import atexit
import builtins
import operator
import os
import signal
import sys
import threading

import _signal

# Private references: the end must work whatever the user has replaced.
_exit, _threads_end, _exit_functions = os._exit, threading._shutdown, atexit._run_exitfuncs
getpid = os.getpid


def exit_code_of(exit_exception):
    """(status, text for stderr or None) of a SystemExit, as the interpreter would have it."""
    code = exit_exception.code
    if code is None:
        return 0, None
    if isinstance(code, int):
        return int.__pos__(code) & 0xFF, None
    try:
        return 1, f"{code}\n"
    except Exception:
        return 1, None


def run_exit_functions():
    """What the interpreter does at the end of a script: wait for threads, then run exit functions."""
    for step in (_threads_end, _exit_functions):
        try:
            step()
        except BaseException as e:
            # An interrupt or exit in here ends the step, not the report.
            if not isinstance(e, (KeyboardInterrupt, SystemExit)):
                sys.unraisablehook(_Unraisable(e))


class _Unraisable:
    def __init__(self, exception):
        self.exc_type, self.exc_value, self.exc_traceback = type(exception), exception, exception.__traceback__
        self.err_msg, self.object = "Exception ignored at exit", None


def leave(status):
    """End this process now; everything worth keeping has been written."""
    flush_c_streams()
    _exit(status)


def flush_c_streams():
    """fflush(NULL): text that C libraries printed is lost otherwise, because the process ends without finalisation."""
    if _fflush is not None:
        try:
            _ctypes.call_function(_fflush, (None,))
        except Exception:
            pass


try:
    # The C module alone: ctypes itself costs several times as much.
    import _ctypes

    _fflush = _ctypes.dlsym(_ctypes.dlopen(None, 0), "fflush")
except Exception:
    _fflush = None


class Interrupts:
    """SIGINT reaches the user's code and nothing else. One that comes before its code has begun is kept for it."""

    def __init__(self):
        # Not what was inherited: a host started in the background of a shell has SIGINT ignored.
        self._users = signal.default_int_handler
        self._allowed = False
        self._early = False
        _signal.signal(_signal.SIGINT, self._note)

    def _note(self, _number, _frame):
        self._early = True

    def allow(self):
        """Before user code: the handler it last had, Python's own at first. One that came before it strikes now."""
        early = self.take_early()
        self._allowed = True
        _signal.signal(_signal.SIGINT, self._users)
        if early:
            _signal.raise_signal(_signal.SIGINT)

    def take_early(self):
        """True if an interrupt came that has not struck. One meant for an earlier execution is forgotten when the host says so."""
        early, self._early = self._early, False
        return early

    def refuse(self):
        """After user code. An interrupt that arrives just now finds the execution over and is dropped."""
        while True:
            try:
                current = _signal.getsignal(_signal.SIGINT)
                _signal.signal(_signal.SIGINT, self._note)
                break
            except KeyboardInterrupt:
                continue
        allowed, self._allowed = self._allowed, False
        if allowed and current is not None:  # None: a handler set by C code, which cannot be put back from Python
            self._users = current


class Builtins:
    """Python's own builtins while the runner reports, the user's while user code runs."""

    def __init__(self):
        self._live = builtins.__dict__
        self._original = dict(builtins.__dict__)
        self._users = {}

    def restore(self):
        """Put Python's own back, remembering what was changed. Calls nothing that may have been replaced."""
        same = _len(self._live) >= _len(self._original) and _all(_map(_same, self._live.values(), self._original.values()))
        if same and not self._users:
            # As nearly always: all are there, in their order. What was added stays.
            return
        changed = {}
        for name, value in self._original.items():
            current = self._live.get(name, _MISSING)
            if current is not value:
                changed[name] = current
                self._live[name] = value
        self._users = changed

    def reapply(self):
        """Before user code runs again: its changes."""
        for name, value in self._users.items():
            if value is _MISSING:
                self._live.pop(name, None)
            else:
                self._live[name] = value


_MISSING = object()
_all, _len, _map, _same = all, len, map, operator.is_


def disarm_timers():
    """A script's alarm must not strike while its results are collected."""
    for timer in (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF):
        _signal.setitimer(timer, 0)
