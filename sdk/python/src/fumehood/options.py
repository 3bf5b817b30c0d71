"""What can be asked for: one vocabulary, that of the HTTP interface, checked before anything is sent."""

from __future__ import annotations

import base64
import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, TypedDict, Union

from ._json import Json

if TYPE_CHECKING:
    from typing import Literal

Content = Union[str, bytes, "os.PathLike[str]"]
"""Content of a file that goes with a request: text, bytes, or (as a `Path`) a local file."""

Files = Union[Mapping[str, Content], Sequence[Json]]
"""Files that go with a request: by their path in the workspace, or as the HTTP interface has them."""


class Limits(TypedDict, total=False):
    """What is absent gets the server's default."""

    memory_mb: int
    cpu: float
    processes: int
    disk_mb: int
    file_size_mb: int
    open_files: int
    output_kb: int
    network: bool


class OutputLimits(TypedDict, total=False):
    """How many characters of each stream the result shows; the rest can be read page by page."""

    max_chars: int
    head: int
    tail: int


class CodeOptions(TypedDict, total=False):
    """Options of every execution."""

    language: Literal["python", "javascript", "typescript", "bash", "command"]
    argv: Sequence[str]
    """For `language="command"`: the program and its arguments; the code is empty."""
    input: Any
    """Passed to `handler(input)`, if the code defines it; what that returns is the result."""
    stdin: str
    stdin_open: bool
    """More can be sent while it runs, with `send_stdin`."""
    result_var: Optional[str]
    preview_rows: int
    format: Literal["default", "markdown"]
    timeout_ms: int
    env: Mapping[str, str]
    files: Files
    collect: Sequence[str]
    """Globs of files to return as artifacts."""
    cwd: str
    policy: str
    output: OutputLimits
    limits: Limits
    callback_url: str
    """For `submit`: where the result is sent."""
    idempotency_key: str
    """Yours instead of a random one: requests with the same key and options run once, even from several processes."""


class Retry(TypedDict, total=False):
    """What happens when the server that runs a job goes away meanwhile."""

    max_attempts: int
    """So often it is begun at most, 1 to 10; with 1, the default, it is `lost` then."""


class RunOptions(CodeOptions, total=False):
    """Options of an execution in a fresh sandbox."""

    template: str
    priority: Literal["low", "normal", "high"]
    """For `submit`: how urgent it is among what waits."""
    retry: Retry
    """For `submit`: whether it is run again when its server goes away."""
    isolation: Literal["auto", "process", "bubblewrap", "container", "gvisor", "microvm"]


class SessionRunOptions(CodeOptions, total=False):
    """Options of an execution in a session."""

    wait: bool
    """`False`: `Conflict` if another execution runs or waits there."""


class SessionOptions(TypedDict, total=False):
    """Options of a session."""

    template: str
    isolation: Literal["auto", "process", "bubblewrap", "container", "gvisor", "microvm"]
    limits: Limits
    env: Mapping[str, str]
    files: Files
    network: Any
    policy: str
    idle_timeout_s: int
    ttl_s: int
    metadata: Mapping[str, Any]
    idempotency_key: str


def request_body(options: Mapping[str, Any], known: type, call: str) -> Json:
    """The request's JSON object for `options`, which must be among those of the TypedDict `known`; `call` is for the error.

    Raises:
        TypeError: an option is unknown; the message proposes the one that was probably meant.
    """
    names = _names(known)
    for name in options:
        if name not in names:
            near = _PROBABLY.get(name) or next(iter(difflib.get_close_matches(name, names, 1, 0.5)), None)
            near = near if near in names else None
            meant = f"; did you mean {near!r}?" if near else f"; there are: {', '.join(sorted(names))}"
            raise TypeError(f"{call}() has no option {name!r}{meant}")
    # `None` means absent everywhere but in `input`, where both mean the same.
    body = {name: value for name, value in options.items() if value is not None}
    if "files" in body:
        body["files"] = _files(body["files"])
    for name in ("argv", "collect"):
        if isinstance(body.get(name), str):
            raise TypeError(f"{name} must be a list of texts, not one text; write [{body[name]!r}]")
        if name in body:
            body[name] = list(body[name])
    return body


_PROBABLY = {"timeout": "timeout_ms", "memory_mb": "limits", "idle_timeout": "idle_timeout_s", "ttl": "ttl_s"}


def _names(known: type) -> frozenset[str]:
    names: frozenset[str] = known.__required_keys__ | known.__optional_keys__  # type: ignore[attr-defined]
    return names


def _files(files: Files) -> list[Json]:
    if not isinstance(files, Mapping):
        return list(files)
    return [{"path": path, **_content(path, content)} for path, content in files.items()]


def _content(path: str, content: Content) -> Json:
    if isinstance(content, str):
        return {"content": content}
    if isinstance(content, os.PathLike):
        content = Path(content).read_bytes()
    if isinstance(content, (bytes, bytearray, memoryview)):
        return {"content_base64": base64.b64encode(content).decode()}
    raise TypeError(
        f"files[{path!r}] must be text, bytes or a Path, not {type(content).__name__}; upload files that are open into a session"
    )
