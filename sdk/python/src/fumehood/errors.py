"""What can go wrong.

::

    FumehoodError
    ├── ConnectionFailed          no answer came
    │   └── StreamBroken          the answer broke off, and could not be taken up again
    ├── ProtocolError             the answer is not one of Fumehood's
    ├── MissingDependency         an optional package is not installed
    ├── NotThere                  no artifact of that name, no such form of an output
    ├── ApiError                  the server refused the request
    │   └── InvalidArgument, Unauthorized, Forbidden, NotFound, Conflict, SessionGone, Busy, Unavailable, …
    └── ExecutionFailed           code did not end well (only from `raise_for_outcome()` and `check=True`)
        └── CodeError, TimedOut, OutOfMemory, OutputLimit, DiskLimit, ProcessLimit, Denied, Cancelled, Crashed, …
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from .execution import ExecutionRecord


class FumehoodError(Exception):
    """Base of everything that this package raises on its own account."""


class ConnectionFailed(FumehoodError):
    """No answer came: nobody listens, the connection broke, or the time was up.

    `sent` tells whether the request may have reached the server.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class StreamBroken(ConnectionFailed):
    """The events of an execution broke off for good. Whether its code still runs is unknown.

    `client.follow(error.execution_id, after=error.after)` goes on where they stopped, once the server can be reached.
    """

    def __init__(self, message: str, *, execution_id: str, after: int) -> None:
        super().__init__(message)
        self.execution_id = execution_id
        self.after = after


class ProtocolError(FumehoodError):
    """Something answered that does not speak Fumehood's protocol."""


class MissingDependency(FumehoodError, ImportError):
    """An optional package is needed for this."""


class NotThere(FumehoodError, KeyError):
    """An execution has no artifact of that name, an output no such form; the message says what there is."""

    # A KeyError would show the message in quotes.
    __str__ = Exception.__str__


class ApiError(FumehoodError):
    """The server refused the request.

    `code` is stable, `message` is for people, `field` names the argument at fault, `request_id` is in the server's log too.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int,
        field: Optional[str] = None,
        request_id: Optional[str] = None,
        retry_after_s: Optional[float] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.field = field
        self.request_id = request_id
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.message} ({self.code}, request {self.request_id})" if self.request_id else self.message


class InvalidArgument(ApiError):
    """A field or parameter is wrong; `field` names it."""


class Unauthorized(ApiError):
    """An API key is needed, or the one given is not the server's."""

    def __str__(self) -> str:
        return f"{super().__str__()}; here it is api_key, or FUMEHOOD_API_KEY in the environment"


class Forbidden(ApiError):
    """Not allowed, with or without a key."""


class NotFound(ApiError):
    """There is no such execution, session, file or route, or no longer."""


class Conflict(ApiError):
    """Something is in the way: the session is busy, a folder has that name, the key was used for something else."""


class SessionGone(ApiError):
    """The session has ended; the message says why."""


class Busy(ApiError):
    """The queue, or the number of sessions, is full. Came again and again, `retry_after_s` apart."""


class QuotaExceeded(Busy):
    """A quota of the tenant is used up; the message says which, how much and until when. `retry_after_s` may be hours."""


class Unavailable(ApiError):
    """The server is shutting down or cannot run code at the moment."""


class PayloadTooLarge(ApiError):
    """The request is larger than the server accepts; upload files into a session instead."""


class DiskFull(ApiError):
    """The session's disk is full."""


class ServerError(ApiError):
    """An error of the server; its log says more under `request_id`."""


QueueFull = Busy

_BY_CODE: Mapping[str, type[ApiError]] = {
    "invalid_argument": InvalidArgument,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "not_found": NotFound,
    "conflict": Conflict,
    "gone": SessionGone,
    "too_many_requests": Busy,
    "quota_exceeded": QuotaExceeded,
    "unavailable": Unavailable,
    "payload_too_large": PayloadTooLarge,
    "insufficient_storage": DiskFull,
    "internal": ServerError,
}

# What reverse proxies answer in the server's place has a status only.
_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: InvalidArgument,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: SessionGone,
    413: PayloadTooLarge,
    429: Busy,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
    507: DiskFull,
}


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error that an answer of `status` stands for, whoever wrote it."""
    about = _error_object(body)
    retry_after_s = _retry_after(headers.get("retry-after"), time.time())
    if about is None:
        kind = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
        excerpt = body[:200].decode("utf-8", "replace").strip()
        message = f"HTTP {status}, and not in Fumehood's words; is this the right address, or a proxy's answer?"
        if excerpt:
            message += f" It begins: {excerpt!r}"
        return kind(message, code="unknown", status=status, retry_after_s=retry_after_s)
    code = str(about.get("code", "unknown"))
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    field = about.get("field")
    request_id = about.get("request_id")
    return kind(
        str(about.get("message") or f"HTTP {status}"),
        code=code,
        status=status,
        field=None if field is None else str(field),
        request_id=None if request_id is None else str(request_id),
        retry_after_s=retry_after_s,
    )


def _error_object(body: bytes) -> Optional[dict[str, Any]]:
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return None
    return error if isinstance(error, dict) else None


def _retry_after(text: Optional[str], now: float) -> Optional[float]:
    """Seconds to wait, from either form of the header; `now` in seconds since 1970."""
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError):
        return None


class ExecutionFailed(FumehoodError):
    """Code did not end well. `execution` has everything about it, `outcome` is how it ended."""

    def __init__(self, execution: ExecutionRecord[Any]) -> None:
        super().__init__(execution)
        self.execution = execution

    @property
    def outcome(self) -> str:
        return self.execution.outcome or self.execution.status

    def __str__(self) -> str:
        return self.execution.failure or f"execution {self.execution.id} is {self.execution.status}"


class CodeError(ExecutionFailed):
    """The code raised an exception, or the program ended with an exit code other than 0."""


class LimitReached(ExecutionFailed):
    """A limit ended the run; `execution.denials` says which, and what would allow more."""


class TimedOut(LimitReached):
    """The run took longer than `timeout_ms`."""


class OutOfMemory(LimitReached):
    """The run took more than `limits.memory_mb`."""


class OutputLimit(LimitReached):
    """The run wrote more output than the server bears."""


class DiskLimit(LimitReached):
    """The run filled its disk."""


class ProcessLimit(LimitReached):
    """The run wanted more processes than `limits.processes`."""


class Denied(ExecutionFailed):
    """The policy refused something; `execution.denials` says what."""


class Cancelled(ExecutionFailed):
    """Somebody cancelled it, or the session ended."""


class Crashed(ExecutionFailed):
    """A signal ended the program."""


class InfrastructureFailed(ExecutionFailed):
    """The sandbox failed, not the code; worth another try."""


class NotFinished(ExecutionFailed):
    """It still waits or runs."""


_BY_OUTCOME: Mapping[str, type[ExecutionFailed]] = {
    "exited": CodeError,
    "exception": CodeError,
    "timed_out": TimedOut,
    "oom_killed": OutOfMemory,
    "output_limit": OutputLimit,
    "disk_limit": DiskLimit,
    "process_limit": ProcessLimit,
    "denied": Denied,
    "cancelled": Cancelled,
    "signaled": Crashed,
    "lost": InfrastructureFailed,
    "infra": InfrastructureFailed,
}


def execution_error(execution: ExecutionRecord[Any]) -> ExecutionFailed:
    """The exception for an execution that did not end well."""
    if execution.outcome is None:
        return NotFinished(execution)
    return _BY_OUTCOME.get(execution.outcome, ExecutionFailed)(execution)
