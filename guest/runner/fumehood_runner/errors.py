"""Uncaught exceptions: Python's own traceback text without the runner's frames, bounded, and the `error` object."""

import os
import traceback
import types

from . import text
from .hints import hint_for
from .refused import refused_by

TRACEBACK_LIMIT = 20_000
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MAX_WALKED = 3_000
_MAX_SHOWN = 60
_SHOWN_HEAD = 20
_LIBRARY_RUN = 6
_MAX_LINE = 1_000


class ErrorReport:
    """What the host and the user get to know about one exception."""

    def __init__(self, exception, sources, filename, network=False):
        self.exception = exception
        sources.refresh()
        self.lines = _traceback_lines(exception, sources)
        self.text = "\n".join(self.lines) + "\n"
        self._line = user_line(exception, sources, filename)
        self._network = network

    def to_json(self):
        """The `error` object of a result."""
        e = self.exception
        number = e.errno if isinstance(e, OSError) and isinstance(e.errno, int) else None
        return {
            "type": text.class_name(e),
            "message": _message(e),
            "line": self._line,
            "traceback": self.lines,
            "hint": hint_for(e, self._network),
            "errno": number,
            "refused": refused_by(e, self._network),
        }


def _message(exception):
    if isinstance(exception, SyntaxError) and isinstance(exception.msg, str):
        return text.cut(exception.msg, 2_000)  # str() of a SyntaxError repeats file and line
    return text.message_of(exception)


def user_line(exception, sources, filename):
    """Innermost line within `filename`, else within any of the user's sources; for its own SyntaxError, where that is."""
    here = anywhere = None
    tb = exception.__traceback__
    while tb is not None:
        name = tb.tb_frame.f_code.co_filename
        if name == filename:
            here = tb.tb_lineno
        elif name in sources:
            anywhere = tb.tb_lineno
        tb = tb.tb_next
    if isinstance(exception, SyntaxError) and exception.filename in sources and isinstance(exception.lineno, int):
        if here is None or exception.filename == filename:
            return exception.lineno
    return here if here is not None else anywhere


def _traceback_lines(exception, sources):
    try:
        whole = "".join(_format(exception, sources))
    except KeyboardInterrupt:
        raise
    except BaseException:
        # Formatting runs the user's __str__, __notes__ and attribute look-ups; any of them may be broken.
        whole = f"{text.class_name(exception)}: {text.message_of(exception)}"
    return _bounded([text.cut(line, _MAX_LINE) for line in whole.rstrip("\n").split("\n")])


def _format(exception, sources):
    tb = _trimmed(exception.__traceback__, sources)
    formatted = traceback.TracebackException(type(exception), exception, tb, compact=True)
    if tb is None and isinstance(exception, SyntaxError) and exception.__cause__ is None and exception.__context__ is None:
        return formatted.format_exception_only()  # as Python does: no code ran, so there is no stack
    _hide_runner(formatted, sources)
    return formatted.format()


def _hide_runner(formatted, sources):
    queue, seen = [formatted], set()
    while queue:
        te = queue.pop()
        if te is None or id(te) in seen:
            continue
        seen.add(id(te))
        if te.stack is not None:
            te.stack = _Stack.of(te.stack, sources)
        queue += [te.__cause__, te.__context__, *(getattr(te, "exceptions", None) or ())]


def _trimmed(tb, sources):
    """Without the frames that led to the user's code; the middle of a gigantic stack is left out."""
    first = tb
    while first is not None and first.tb_frame.f_code.co_filename not in sources:
        first = first.tb_next
    if first is None:
        # No user frame at all, for example an interrupt inside the event loop.
        first = tb
        while first is not None and first.tb_frame.f_code.co_filename.startswith(_HERE):
            first = first.tb_next
    entries = []
    while first is not None:
        entries.append(first)
        first = first.tb_next
    if len(entries) > _MAX_WALKED:
        entries = entries[: _MAX_WALKED // 2] + entries[-_MAX_WALKED // 2 :]
    linked = None
    for entry in reversed(entries):
        linked = types.TracebackType(linked, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return linked


class _Stack(traceback.StackSummary):
    """A stack that shows the user's frames and only the ends of long runs of library frames."""

    @classmethod
    def of(cls, frames, sources):
        """Frames of a StackSummary without the runner's own."""
        stack = cls(f for f in frames if not f.filename.startswith(_HERE))
        stack.is_user = [f.filename in sources for f in stack]
        return stack

    def format(self, **options):
        """Lines as StackSummary.format gives them; repeated frames are collapsed there."""
        out = []
        for frames, omitted in self._segments():
            if omitted:
                out.append(f"  [... {omitted} library frames omitted ...]\n")
            out += traceback.StackSummary.format(traceback.StackSummary.from_list(frames), **options)
        if len(out) > _MAX_SHOWN:
            tail = _MAX_SHOWN - _SHOWN_HEAD
            gap = f"  [... {len(out) - _MAX_SHOWN} frames omitted ...]\n"
            out = out[:_SHOWN_HEAD] + [gap] + out[-tail:]
        return out

    def _segments(self):
        """[(frames, number of frames omitted before them)]."""
        segments, current, n = [], [], 0
        omitted = 0
        while n < len(self):
            end = n
            while end < len(self) and self.is_user[end] == self.is_user[n]:
                end += 1
            run = list(self[n:end])
            if self.is_user[n] or len(run) <= _LIBRARY_RUN:
                current += run
            else:
                current += run[:2]
                segments.append((current, omitted))
                current, omitted = run[-3:], len(run) - 5
            n = end
        segments.append((current, omitted))
        return segments


def _bounded(lines):
    """At most TRACEBACK_LIMIT characters: the beginning, and more of the end, where the error is."""
    if sum(map(len, lines)) + len(lines) <= TRACEBACK_LIMIT:
        return lines
    head, tail = [], []
    left = TRACEBACK_LIMIT // 3
    n = 0
    while n < len(lines) and left > len(lines[n]):
        head.append(lines[n])
        left -= len(lines[n]) + 1
        n += 1
    left = TRACEBACK_LIMIT * 2 // 3
    end = len(lines)
    while end > n and left > len(lines[end - 1]):
        end -= 1
        tail.append(lines[end])
        left -= len(lines[end]) + 1
    return head + [f"[... {end - n} lines omitted ...]"] + tail[::-1]
