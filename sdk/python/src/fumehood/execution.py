"""Executions as they come back."""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generic,
    Optional,
    TypeVar,
    Union,
    overload,
)

from . import _json
from ._json import Json
from .errors import NotThere, execution_error
from .tables import Table
from .values import decode

if TYPE_CHECKING:
    import os

    from typing_extensions import Self

SUFFIXES: Mapping[str, str] = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".svg": "image/svg+xml",
    ".html": "text/html",
    ".md": "text/markdown",
    ".txt": "text/plain",
    ".json": "application/json",
}
PLOTLY = "application/vnd.plotly.v1+json"
# Best first; HTML is not among them, it would run in the reader's page.
IMAGES = ("image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp")


@dataclass
class ErrorReport:
    """Why an execution did not end well."""

    code: str
    type: str
    message: str
    line: Optional[int] = None
    traceback: list[str] = field(default_factory=list)
    hint: Optional[str] = None

    @classmethod
    def from_json(cls, data: Json) -> ErrorReport:
        return cls(
            code=_json.text(data, "code"),
            type=_json.text(data, "type"),
            message=_json.text(data, "message"),
            line=_json.maybe_whole(data, "line"),
            traceback=_json.texts(data, "traceback"),
            hint=_json.maybe_text(data, "hint"),
        )

    def __str__(self) -> str:
        """In one line, and the hint in a second."""
        # Outcomes stand in for the type of what is no exception, and say nothing that the message does not.
        told = self.message or self.type
        text = f"{self.type}: {self.message}" if self.code == "exception" and self.message else told
        if self.line is not None:
            text += f" (line {self.line})"
        return f"{text}\nhint: {self.hint}" if self.hint else text


@dataclass
class Denial:
    """Something refused, and what would allow it."""

    kind: str
    what: str
    rule: str
    remedy: str

    @classmethod
    def from_json(cls, data: Json) -> Denial:
        return cls(*(_json.text(data, name) for name in ("kind", "what", "rule", "remedy")))


@dataclass
class Notice:
    """A warning: something to know that is no failure."""

    code: str
    message: str

    @classmethod
    def from_json(cls, data: Json) -> Notice:
        return cls(_json.text(data, "code"), _json.text(data, "message"))


@dataclass
class Variable:
    """A variable of the code: its type, shape and a short form."""

    type: str
    shape: Optional[list[int]]
    repr: str

    @classmethod
    def from_json(cls, data: Json) -> Variable:
        shape = data.get("shape")
        return cls(_json.text(data, "type"), shape if isinstance(shape, list) else None, _json.text(data, "repr"))


@dataclass
class Isolation:
    """The isolation asked for, and the one in force, layer by layer."""

    requested: str
    effective: str
    features: dict[str, str]

    @classmethod
    def from_json(cls, data: Json) -> Isolation:
        features = {name: str(state) for name, state in _json.mapping(data, "features").items()}
        return cls(_json.text(data, "requested"), _json.text(data, "effective"), features)


@dataclass
class Policy:
    """The policy in force, and what it found."""

    name: str
    risk: Optional[str]
    findings: list[Json]

    @classmethod
    def from_json(cls, data: Json) -> Policy:
        return cls(_json.text(data, "name"), _json.maybe_text(data, "risk"), _json.objects(data, "findings"))


@dataclass
class Metrics:
    """What the host saw of a run."""

    queue_ms: float
    start_ms: float
    duration_ms: float
    cpu_ms: float
    memory_peak_mb: float
    bytes_read: Optional[int] = None
    bytes_written: Optional[int] = None
    processes_peak: Optional[int] = None

    @classmethod
    def from_json(cls, data: Json) -> Metrics:
        return cls(
            queue_ms=_json.number(data, "queue_ms"),
            start_ms=_json.number(data, "start_ms"),
            duration_ms=_json.number(data, "duration_ms"),
            cpu_ms=_json.number(data, "cpu_ms"),
            memory_peak_mb=_json.number(data, "memory_peak_mb"),
            bytes_read=_json.maybe_whole(data, "bytes_read"),
            bytes_written=_json.maybe_whole(data, "bytes_written"),
            processes_peak=_json.maybe_whole(data, "processes_peak"),
        )


@dataclass(repr=False)
class Output:
    """Something shown besides text: one thing in several forms. `mime` has them by media type, binary ones in base64."""

    mime: dict[str, Any]
    metadata: Json

    @classmethod
    def from_json(cls, data: Json) -> Output:
        return cls(_json.mapping(data, "mime"), _json.mapping(data, "metadata"))

    @property
    def kind(self) -> Optional[str]:
        """`result`, `figure`, or `None` for what `display(...)` showed."""
        return _json.maybe_text(self.metadata, "kind")

    @property
    def is_figure(self) -> bool:
        """Whether it is a figure or an image."""
        return self.kind == "figure" or any(form in self.mime for form in IMAGES)

    @property
    def chart(self) -> Optional[Json]:
        """What a figure shows, as data: title, axes, series. `None` where the server does not say."""
        return _json.maybe_mapping(self.metadata, "chart")

    @property
    def title(self) -> Optional[str]:
        """What a figure is called, in one line: by itself, or by the first of its parts that has a title."""
        chart = self.chart or {}
        for about in (chart, *_json.objects(chart, "axes")):
            title = " ".join(_json.text(about, "title").split())
            if title:
                return title
        return None

    @property
    def text(self) -> str:
        """For people and models: Markdown, else plain text."""
        for form in ("text/markdown", "text/plain"):
            content = self.mime.get(form)
            if isinstance(content, str):
                return content
        return f"<{', '.join(self.mime) or 'nothing'}>"

    @property
    def png(self) -> Optional[bytes]:
        """The PNG image, if there is one."""
        return self.read("image/png") if "image/png" in self.mime else None

    def read(self, mime: str) -> bytes:
        """Content in the form `mime`; text and JSON as UTF-8.

        Raises:
            NotThere: there is no such form; the message names those there are.
        """
        if mime not in self.mime:
            raise NotThere(f"it has no form {mime!r}, but {', '.join(sorted(self.mime)) or 'none'}")
        content = self.mime[mime]
        if not isinstance(content, str):
            return json.dumps(content).encode()
        if mime.startswith("text/") or mime.endswith(("json", "+xml", "javascript")):
            return content.encode()
        try:
            return base64.b64decode(re.sub(r"\s", "", content), validate=True)
        except binascii.Error as error:
            # A display is what the code says it is.
            raise ValueError(f"its {mime} is not base64") from error

    def save(self, path: Union[str, os.PathLike[str]]) -> Path:
        """Writes the form that fits the file's suffix (`.png`, `.svg`, `.html`, `.json` …) and returns the path."""
        path = Path(path)
        mime = SUFFIXES.get(path.suffix.lower())
        if mime == "application/json" and mime not in self.mime:
            mime = PLOTLY
        if mime is None:
            raise ValueError(f"{path.name!r} should end with one of {', '.join(SUFFIXES)}")
        path.write_bytes(self.read(mime))
        return path

    def __repr__(self) -> str:
        return f"<Output {self.kind or 'display'}: {', '.join(self.mime)}>"

    def _repr_html_(self) -> str:
        return _output_html(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/plain": self.text, "text/html": self._repr_html_()}


@dataclass
class ArtifactRecord:
    """A file that an execution left: `path` below the workspace, `size` in bytes, `sha256` in hexadecimal."""

    path: str
    size: int
    sha256: str
    mime: str
    url: str

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


def artifact_fields(data: Json) -> tuple[str, int, str, str, str]:
    return (
        _json.text(data, "path"),
        _json.whole(data, "size"),
        _json.text(data, "sha256"),
        _json.text(data, "mime"),
        _json.text(data, "url"),
    )


A = TypeVar("A", bound=ArtifactRecord)


class Artifacts(Sequence[A]):
    """Files of an execution, by position or path: `artifacts[0]`, `artifacts["out/table.csv"]`."""

    def __init__(self, files: Sequence[A] = ()) -> None:
        self._files = tuple(files)

    @overload
    def __getitem__(self, key: Union[int, str]) -> A: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[A]: ...
    def __getitem__(self, key: Union[int, str, slice]) -> Union[A, Sequence[A]]:
        if not isinstance(key, str):
            return self._files[key]
        for file in self._files:
            if file.path == key.removeprefix("/data/"):
                return file
        there = ", ".join(repr(file.path) for file in self._files) or "none; `collect` says which files come back"
        raise NotThere(f"no artifact {key!r}; there: {there}")

    def __contains__(self, key: object) -> bool:
        return key in self._files or any(file.path == key for file in self._files)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self._files]

    def __repr__(self) -> str:
        return f"Artifacts({self.paths})"


@dataclass(repr=False)
class ExecutionRecord(Generic[A]):
    """One run of code: what it printed, showed and returned, how it ended, and under which isolation.

    Fields have the names and meanings of the HTTP interface; `raw` is the object as it came.
    """

    id: str
    status: str
    session_id: Optional[str]
    template: str
    outcome: Optional[str]
    exit_code: Optional[int]
    stdout: str
    stderr: str
    stdout_truncated: bool
    stderr_truncated: bool
    result: Any
    """As JSON, with the tags of docs/values.md; `value` has Python values."""
    dataframe: Optional[Table]
    variables: dict[str, Variable]
    outputs: list[Output]
    error: Optional[ErrorReport]
    fault: Optional[str]
    denials: list[Denial]
    warnings: list[Notice]
    artifacts: Artifacts[A]
    isolation: Isolation
    policy: Policy
    metrics: Metrics
    interpreter_restarted: bool
    created_at: Optional[datetime]
    started_at: Optional[datetime]
    finished_at: Optional[datetime]
    raw: Json

    @classmethod
    def parse(cls, data: Json, artifact: Callable[[Json], A]) -> Self:
        """From the object that the server sends."""
        dataframe = _json.maybe_mapping(data, "dataframe")
        error = _json.maybe_mapping(data, "error")
        variables = _json.mapping(data, "variables")
        return cls(
            id=_json.text(data, "id"),
            status=_json.text(data, "status"),
            session_id=_json.maybe_text(data, "session_id"),
            template=_json.text(data, "template"),
            outcome=_json.maybe_text(data, "outcome"),
            exit_code=_json.maybe_whole(data, "exit_code"),
            stdout=_json.text(data, "stdout"),
            stderr=_json.text(data, "stderr"),
            stdout_truncated=_json.flag(data, "stdout_truncated"),
            stderr_truncated=_json.flag(data, "stderr_truncated"),
            result=data.get("result"),
            dataframe=None if dataframe is None else Table.from_json(dataframe),
            variables={name: Variable.from_json(about) for name, about in variables.items() if isinstance(about, dict)},
            outputs=[Output.from_json(output) for output in _json.objects(data, "outputs")],
            error=None if error is None else ErrorReport.from_json(error),
            fault=_json.maybe_text(data, "fault"),
            denials=[Denial.from_json(denial) for denial in _json.objects(data, "denials")],
            warnings=[Notice.from_json(warning) for warning in _json.objects(data, "warnings")],
            artifacts=Artifacts([artifact(about) for about in _json.objects(data, "artifacts")]),
            isolation=Isolation.from_json(_json.mapping(data, "isolation")),
            policy=Policy.from_json(_json.mapping(data, "policy")),
            metrics=Metrics.from_json(_json.mapping(data, "metrics")),
            interpreter_restarted=_json.flag(data, "interpreter_restarted"),
            created_at=_json.moment(data, "created_at"),
            started_at=_json.moment(data, "started_at"),
            finished_at=_json.moment(data, "finished_at"),
            raw=data,
        )

    @property
    def ok(self) -> bool:
        """Whether the code ended by itself with exit code 0."""
        return self.status == "completed"

    @property
    def finished(self) -> bool:
        """Whether it has ended, well or not."""
        return self.status in ("completed", "failed", "cancelled")

    @property
    def failure(self) -> Optional[str]:
        """Why it did not end well, in a line or two; `None` if it did, or has not ended."""
        if self.ok or not self.finished:
            return None
        if self.error is not None:
            return str(self.error)
        return f"ended with outcome {self.outcome}"

    @property
    def value(self) -> Any:
        """`result` with Python values in place of the tags: dates, decimals, bytes, sets and so on."""
        return decode(self.result)

    @property
    def figures(self) -> list[Output]:
        """The figures and images among `outputs`."""
        return [output for output in self.outputs if output.is_figure]

    @property
    def text(self) -> str:
        """What a person or a model wants to see: what was printed and shown, the result, and a short error."""
        return "\n".join(_text_parts(self))

    def raise_for_outcome(self) -> Self:
        """Raises the subclass of `ExecutionFailed` that fits, unless the execution ended well; returns itself, for chaining."""
        if not self.ok:
            raise execution_error(self)
        return self

    def __repr__(self) -> str:
        name = type(self).__name__
        if self.failure:
            return f"<{name} {self.id} {self.status}: {self.failure.splitlines()[0]}>"
        return f"<{name} {self.id} {self.status} in {self.metrics.duration_ms:.0f} ms>"

    def _repr_html_(self) -> str:
        return "".join(_html_parts(self))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/plain": self.text or repr(self), "text/html": self._repr_html_()}


def _text_parts(execution: ExecutionRecord[Any]) -> Iterator[str]:
    if execution.stdout:
        yield execution.stdout.rstrip("\n")
    # The traceback is there too, and `failure` is its short form; of programs that are no Python this is all there is.
    told = execution.error is not None and execution.error.code == "exception"
    if execution.failure and not told and execution.stderr:
        yield execution.stderr.rstrip("\n")
    figures = 0
    for output in execution.outputs:
        if output.is_figure:
            figures += 1
            yield f"[figure {figures}: {output.title}]" if output.title else f"[figure {figures}]"
        elif output.kind == "result" and execution.dataframe is not None and execution.dataframe.markdown is not None:
            yield execution.dataframe.markdown
        else:
            yield output.text
    for artifact in execution.artifacts:
        yield f"[file {artifact.path}, {artifact.size} bytes]"
    if execution.failure:
        yield execution.failure
    if execution.interpreter_restarted:
        yield "[the interpreter was restarted: variables are gone, files are kept]"
    if not execution.finished:
        yield f"[{execution.status}]"


def _html_parts(execution: ExecutionRecord[Any]) -> Iterator[str]:
    if execution.stdout:
        yield f"<pre>{html.escape(execution.stdout)}</pre>"
    if execution.stderr:
        yield f'<pre style="color: #a33">{html.escape(execution.stderr)}</pre>'
    for output in execution.outputs:
        if output.kind == "result" and execution.dataframe is not None:
            yield execution.dataframe._repr_html_()
        else:
            yield _output_html(output)
    for artifact in execution.artifacts:
        yield f"<p>{html.escape(f'{artifact.path}, {artifact.size} bytes')}</p>"
    if execution.failure:
        yield f"<p><strong>{html.escape(execution.failure)}</strong></p>"


def _output_html(output: Output) -> str:
    """Never the code's own HTML in the reader's page: pictures as such, other HTML in a frame where no script runs."""
    for form in IMAGES:
        content = output.mime.get(form)
        if not isinstance(content, str):
            continue
        if form == "image/svg+xml":
            content = base64.b64encode(content.encode()).decode()
        content = re.sub(r"\s", "", content)
        if re.fullmatch(r"[A-Za-z0-9+/]+=*", content):
            return f'<img src="data:{form};base64,{content}">'
    page = output.mime.get("text/html")
    if isinstance(page, str):
        return f'<iframe sandbox="" style="width: 100%; height: 20em; border: 0" srcdoc="{html.escape(page, quote=True)}"></iframe>'
    return f"<pre>{html.escape(output.text)}</pre>"


E = TypeVar("E", bound=ExecutionRecord[Any])


@dataclass
class Event(Generic[E]):
    """Something that happened in an execution. `type` is `started`, `stdout`, `stderr`, `display`, `warning` or `result` (always last)."""

    seq: int
    type: str
    data: Json
    execution: Optional[E] = None
    """The whole execution, in `result`."""

    @property
    def text(self) -> str:
        """What was written, for `stdout` and `stderr`; what was shown, for `display`; the message of a `warning`; else empty."""
        if self.type in ("stdout", "stderr"):
            return _json.text(self.data, "text")
        if self.output is not None:
            return self.output.text
        return _json.text(self.data, "message") if self.type == "warning" else ""

    @property
    def output(self) -> Optional[Output]:
        """What was shown, for `display`."""
        return Output.from_json(self.data) if self.type == "display" else None


@dataclass
class OutputPage:
    """A page of a stream's text; offsets count characters. `next_offset` is `None` at the end."""

    stream: str
    offset: int
    total: int
    next_offset: Optional[int]
    text: str

    @classmethod
    def from_json(cls, data: Json) -> OutputPage:
        return cls(
            _json.text(data, "stream"),
            _json.whole(data, "offset"),
            _json.whole(data, "total"),
            _json.maybe_whole(data, "next_offset"),
            _json.text(data, "text"),
        )
