"""What an operation asks of the outside, one step at a time.

An operation is a generator: it yields steps, and gets back what they brought. Everything that is decided (requests, retries, resumption,
what an answer means) is decided in operations; the clients only perform steps, one with blocking calls and one with `await`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, TypeVar, Union

from ._sources import Part, Source
from .errors import ConnectionFailed, ProtocolError

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    """Below the server's address, quoted."""
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Optional[bytes] = None
    source: Optional[Source] = None
    """The body, streamed."""
    parts: tuple[Part, ...] = ()
    """The body, as multipart/form-data."""
    repeatable: bool = True
    """Sent twice it does what it does sent once. Otherwise it is repeated only when the server cannot have had it, or refused it."""
    patience_s: Optional[float] = None
    """How long to wait for the next byte; `None` as the client is set."""


@dataclass(frozen=True)
class Reply:
    """An answer; `body` is empty as long as it is not read. Names of headers are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    def json(self) -> dict[str, Any]:
        """Its body, which must be a JSON object."""
        try:
            data = json.loads(self.body)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            excerpt = self.body[:200].decode("utf-8", "replace").strip()
            raise ProtocolError(
                f"the answer is no JSON object; is this the address of a Fumehood server? It begins: {excerpt!r}"
            )
        return data


@dataclass(frozen=True)
class Send:
    """Send a request and read its answer: brings a `Reply`, or raises `ConnectionFailed`."""

    request: Request


@dataclass(frozen=True)
class Open:
    """The same, but the body of a success stays to be read with `Read`."""

    request: Request


@dataclass(frozen=True)
class Read:
    """Brings the next bytes of the open answer, or `None` at its end."""


@dataclass(frozen=True)
class Close:
    """Close the open answer, if there is one."""


@dataclass(frozen=True)
class Sleep:
    """Wait."""

    seconds: float


@dataclass(frozen=True)
class Work:
    """Call something that blocks for a moment, as the disk does: brings what it returns."""

    call: Callable[[], Any]


@dataclass(frozen=True)
class Emit:
    """Give something to the caller."""

    item: Any


Step = Union[Send, Open, Read, Close, Sleep, Work, Emit]
Steps = Generator[Step, Any, T]


def concluded(steps: Steps[Any]) -> Steps[None]:
    """The same steps, with the value they end with emitted."""
    yield Emit((yield from steps))


@dataclass(frozen=True)
class Retry:
    """When and how often a request is sent again: after connection failures, and after 429, 502, 503 and 504.

    Pauses double from one try to the next and are shortened by chance, so that clients refused together do not come back together. What the
    server asks for in `Retry-After` is waited for, unless it is more than `longest_wait_s`.
    """

    tries: int = 5
    first_pause_s: float = 0.2
    longest_pause_s: float = 8.0
    longest_wait_s: float = 60.0
    chance: Callable[[], float] = random.random
    """From 0 up to 1."""

    def pause_s(self, failures: int, asked_s: Optional[float] = None) -> Optional[float]:
        """How long to wait after so many failures (1 at least); `None` to give up."""
        if failures >= self.tries or (asked_s is not None and asked_s > self.longest_wait_s):
            return None
        pause = min(self.first_pause_s * 2.0 ** (failures - 1), self.longest_pause_s)
        pause *= 0.5 + 0.5 * self.chance()
        # Never before the server asked for.
        return pause if asked_s is None else asked_s + pause / 2


class Failures:
    """Counts the failures since something went well, and says how long to wait."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self._count = 0

    def forgotten(self) -> None:
        self._count = 0

    def pause_s(self, asked_s: Optional[float] = None) -> Optional[float]:
        self._count += 1
        return self._retry.pause_s(self._count, asked_s)


def gave_up(error: ConnectionFailed, tries: int) -> ConnectionFailed:
    """The same error, saying that it was tried more than once."""
    if tries > 1:
        error.args = (f"{error} (tried {tries} times)",)
    return error
