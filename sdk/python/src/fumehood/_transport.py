"""What the two clients share on the way to httpx: settings, requests in its words, and its failures in ours."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Callable, Generic, Optional, TypeVar, Union

import httpx

from ._steps import Reply, Request, Retry
from ._version import __version__
from .errors import ConnectionFailed
from .execution import Event, ExecutionRecord, Output

DEFAULT_URL = "http://127.0.0.1:8080"


@dataclass(frozen=True)
class Settings:
    """How to reach a server."""

    base_url: str
    api_key: Optional[str]
    timeout_s: float
    retry: Retry

    @classmethod
    def of(
        cls, base_url: Optional[str], api_key: Optional[str], timeout_s: float, retries: Union[int, Retry]
    ) -> Settings:
        """Checks what the caller gave; what is absent comes from the environment.

        Raises:
            ValueError: something cannot be used; the message says what.
        """
        url = (base_url or os.environ.get("FUMEHOOD_URL") or DEFAULT_URL).strip().rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"the server's address must begin with http:// or https://, got {url!r}")
        key = api_key if api_key is not None else os.environ.get("FUMEHOOD_API_KEY")
        if key and not all("!" <= character <= "~" for character in key):
            raise ValueError("the API key must be printable ASCII without spaces; is there a line break at its end?")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s must be positive, got {timeout_s!r}")
        if not isinstance(retries, Retry):
            if retries < 0:
                raise ValueError(f"retries must not be negative, got {retries!r}")
            retries = Retry(tries=retries + 1)
        return cls(url, key or None, timeout_s, retries)

    def arguments(self) -> dict[str, Any]:
        """Of the constructors of both httpx clients."""
        headers = {"User-Agent": f"fumehood-python/{__version__}", "Accept": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return {
            "base_url": self.base_url,
            "headers": headers,
            "timeout": httpx.Timeout(self.timeout_s, connect=min(self.timeout_s, 10.0)),
            # Streams hold their connections, as many as there are.
            "limits": httpx.Limits(max_connections=None, max_keepalive_connections=20),
            # A proxy for the outside has no way to this machine.
            "trust_env": not _is_here(self.base_url),
        }


def _is_here(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def arguments(request: Request, settings: Settings, content: Any, opened: ExitStack) -> dict[str, Any]:
    """Of `build_request` of both httpx clients. Files that it opens are closed with `opened`."""
    given: dict[str, Any] = {
        "method": request.method,
        "url": request.path,
        "params": dict(request.params) or None,
        "headers": dict(request.headers),
    }
    if request.parts:
        given["files"] = [
            ("file", (part.name, opened.enter_context(part.source.open()), "application/octet-stream"))
            for part in request.parts
        ]
    elif content is not None:
        given["content"] = content
    elif request.body is not None:
        given["content"] = request.body
    if request.patience_s is not None:
        given["timeout"] = httpx.Timeout(
            settings.timeout_s, connect=min(settings.timeout_s, 10.0), read=request.patience_s
        )
    return given


def reply(response: httpx.Response, body: bytes = b"") -> Reply:
    return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)


def failure(error: Exception, request: Optional[Request], settings: Settings) -> Exception:
    """What the caller gets for an exception of httpx."""
    asked = f" ({request.method} {request.path})" if request is not None else ""
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        why = "no answer within the time" if isinstance(error, httpx.ConnectTimeout) else str(error) or "refused"
        message = f"cannot connect to {settings.base_url}: {why}; is the server running? base_url or FUMEHOOD_URL says where it is"
        return ConnectionFailed(message, sent=False)
    if isinstance(error, httpx.PoolTimeout):
        return ConnectionFailed(f"no connection to {settings.base_url} became free", sent=False)
    if isinstance(error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL)):
        return ValueError(f"the request cannot be sent{asked}: {error}")
    if isinstance(error, httpx.TimeoutException):
        waited = request.patience_s if request is not None and request.patience_s is not None else settings.timeout_s
        return ConnectionFailed(f"{settings.base_url} was silent for {waited:g} s{asked}")
    return ConnectionFailed(f"the connection to {settings.base_url} broke{asked}: {error or type(error).__name__}")


# What both httpx and what lies below it may raise while bytes go to and fro.
HTTPX_ERRORS = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)

E = TypeVar("E", bound=ExecutionRecord[Any])
Heard = Union[None, Awaitable[None], Any]


@dataclass(frozen=True)
class Listeners(Generic[E]):
    """Callbacks of a run."""

    on_stdout: Optional[Callable[[str], Any]] = None
    on_stderr: Optional[Callable[[str], Any]] = None
    on_display: Optional[Callable[[Output], Any]] = None

    def __bool__(self) -> bool:
        return any((self.on_stdout, self.on_stderr, self.on_display))

    def hear(self, event: Event[E]) -> Any:
        """Calls the one that `event` is for; what it returns may have to be awaited."""
        output = event.output
        if output is not None:
            return self.on_display(output) if self.on_display else None
        by_type: Mapping[str, Optional[Callable[[str], Any]]] = {"stdout": self.on_stdout, "stderr": self.on_stderr}
        callback = by_type.get(event.type)
        return callback(event.text) if callback else None
