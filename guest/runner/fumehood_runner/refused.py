"""What an uncaught exception says that the sandbox refused: a place, or the way out."""

import errno
import os

from . import text
from .hints import is_network

_PLACES = {errno.EROFS, errno.EACCES, errno.EPERM}
_UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL}
_MOST = 300


def refused_by(exception, network=False):
    """`{kind, what}` for `denials`, or None. Never raises."""
    try:
        return _path(exception) or (None if network else _network(exception))
    except BaseException:
        return None  # what it looks at is the user's, and may raise anything


def _path(exception):
    for e in _chain(exception):
        if isinstance(e, OSError) and e.errno in _PLACES and isinstance(e.filename, (str, bytes)):
            return {"kind": "path", "what": text.cut(f"{os.fsdecode(e.filename)} ({os.strerror(e.errno)})", _MOST)}
    return None


def _network(exception):
    if not is_network(exception):
        return None
    refusals = [e for e in _chain(exception) if isinstance(e, OSError)]
    if any(e.errno == errno.ECONNREFUSED for e in refusals):
        return None  # something was reached, within the sandbox: nobody listens there
    for e in _chain(exception):
        url = getattr(getattr(e, "request", None), "url", None) or getattr(e, "url", None)
        if url:
            return {"kind": "network", "what": text.cut(f"connecting to {url}", _MOST)}
    unreachable = [e for e in refusals if e.errno in _UNREACHABLE]
    last = (unreachable or refusals or [exception])[0]
    return {"kind": "network", "what": text.cut(f"connecting to the outside ({text.message_of(last, _MOST)})", _MOST)}


def _chain(exception):
    """The exception and those that it came from."""
    seen = []
    while isinstance(exception, BaseException) and not any(exception is e for e in seen) and len(seen) < 30:
        seen.append(exception)
        reason = getattr(exception, "reason", None) if isinstance(exception, OSError) else None
        exception = reason if isinstance(reason, BaseException) else exception.__cause__ or exception.__context__
    return seen
