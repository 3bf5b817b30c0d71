"""What the clients can do, as steps: requests, what their answers mean, and what happens when they fail."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar, Union
from urllib.parse import quote

from . import _json
from ._events import EventReader
from ._json import Json
from ._sources import HashedSink, MemorySink, Part, Sink, Source, Uploadable, sink_for
from ._steps import Close, Emit, Failures, Open, Read, Reply, Request, Retry, Send, Sleep, Steps, Work, gave_up
from .errors import ApiError, ConnectionFailed, NotFound, ProtocolError, StreamBroken, api_error
from .execution import Event, ExecutionRecord, OutputPage
from .options import RunOptions, SessionOptions, SessionRunOptions, request_body
from .records import FileList, Health, Pool, SandboxProcess, SessionInfo, StoredFile, Template

if TYPE_CHECKING:
    import os

E = TypeVar("E", bound=ExecutionRecord[Any])

# Refused before anything happened (429, 503), or lost on the way to the server and back (502, 504).
_REFUSED = (429, 503)
_LOST = (502, 504)
# A run that says nothing of its timeout has the server's default, which is this unless the operator changed it.
_DEFAULT_TIMEOUT_MS = 30_000
# The longest run that a server allows unless the operator changed it; a reset waits for what runs.
_LONGEST_RUN_S = 300.0
_PAGE = 100_000


@dataclass
class Progress(Generic[E]):
    """How far the events of an execution have come."""

    execution_id: Optional[str] = None
    after: int = 0
    execution: Optional[E] = None


class Operations(Generic[E]):
    """All operations of a client whose executions are `E`."""

    def __init__(self, retry: Retry, patience_s: float, execution: Callable[[Json], E]) -> None:
        self.retry = retry
        self._patience_s = patience_s
        self._make = execution

    # Requests and answers

    def send(self, request: Request) -> Steps[Reply]:
        """The answer to `request`, which is a success; tried again as `Retry` says."""
        return (yield from self._attempt(request, Send(request), Failures(self.retry)))

    def _attempt(self, request: Request, step: Union[Send, Open], failures: Failures) -> Steps[Reply]:
        tries = 0
        while True:
            tries += 1
            try:
                reply: Reply = yield step
            except ConnectionFailed as error:
                pause = failures.pause_s() if request.repeatable or not error.sent else None
                if pause is None:
                    raise gave_up(error, tries) from error.__cause__
            else:
                if reply.status < 400:
                    return reply
                refusal = api_error(reply.status, reply.headers, reply.body)
                again = reply.status in _REFUSED or (reply.status in _LOST and request.repeatable)
                pause = failures.pause_s(refusal.retry_after_s) if again else None
                if pause is None:
                    raise refusal
            yield Sleep(pause)

    def _get(self, address: str, **params: Any) -> Steps[Json]:
        reply = yield from self.send(Request("GET", address, _params(params)))
        return reply.json()

    def _post(self, path: str, body: Optional[Json] = None, *, repeatable: bool, **extra: Any) -> Steps[Json]:
        reply = yield from self.send(post(path, body, repeatable=repeatable, **extra))
        return reply.json()

    def _execution(self, data: Json) -> E:
        if not isinstance(data.get("id"), str) or not isinstance(data.get("status"), str):
            raise ProtocolError("the answer is no execution; is this the address of a Fumehood server?")
        return self._make(data)

    # Executions

    def begin(
        self,
        code: str,
        options: Mapping[str, Any],
        session_id: Optional[str],
        *,
        accept: str,
        call: str,
        mode: str = "sync",
    ) -> Request:
        """The request that runs `code`; sent again it finds the run that it began."""
        if not isinstance(code, str):
            raise TypeError(f"code must be text, not {type(code).__name__}")
        given = dict(options)
        wait = given.pop("wait", None) if session_id is not None else None
        key = given.pop("idempotency_key", None) or new_key()
        body = request_body(given, SessionRunOptions if session_id is not None else RunOptions, call)
        body = {"code": code, **body}
        if mode != "sync":
            body["mode"] = mode
        path = "/v1/executions" if session_id is None else f"{_session(session_id)}/executions"
        request = post(path, body, repeatable=True, accept=accept, key=key, params=_params({"wait": wait}))
        if accept != "application/json" or mode != "sync":
            return request
        timeout_ms = body.get("timeout_ms", _DEFAULT_TIMEOUT_MS)
        # The server says nothing until the code has ended, and it may have to wait for its turn.
        patience_s = self._patience_s + (timeout_ms / 1000 if isinstance(timeout_ms, (int, float)) else 0)
        return replace(request, patience_s=patience_s)

    def run(self, code: str, options: Mapping[str, Any], session_id: Optional[str] = None) -> Steps[E]:
        reply = yield from self.send(self.begin(code, options, session_id, accept="application/json", call="run"))
        return self._execution(reply.json())

    def submit(self, code: str, options: Mapping[str, Any], session_id: Optional[str] = None) -> Steps[E]:
        request = self.begin(code, options, session_id, accept="application/json", call="submit", mode="async")
        reply = yield from self.send(request)
        return self._execution(reply.json())

    def stream(
        self, code: str, options: Mapping[str, Any], session_id: Optional[str], progress: Progress[E]
    ) -> Steps[None]:
        request = self.begin(code, options, session_id, accept="text/event-stream", call="stream")
        return self._events(request, progress)

    def follow(self, execution_id: str, after: int, progress: Progress[E]) -> Steps[None]:
        progress.execution_id, progress.after = execution_id, after
        return self._events(_follow(execution_id, after), progress)

    def _events(self, request: Request, progress: Progress[E]) -> Steps[None]:
        """Emits events until `result`. A stream that breaks off is taken up again after the last event that came."""
        failures = Failures(self.retry)
        resumed = False
        while True:
            try:
                reply = yield from self._attempt(request, Open(request), failures)
                progress.execution_id = reply.headers.get("x-execution-id", progress.execution_id)
                if not reply.headers.get("content-type", "").startswith("text/event-stream"):
                    raise ProtocolError("the answer is no stream of events; is this the address of a Fumehood server?")
                reader = EventReader()
                while (chunk := (yield Read())) is not None:
                    for data in reader.feed(chunk):
                        # A repeated request brings everything from the beginning.
                        if data["seq"] <= progress.after:
                            continue
                        failures.forgotten()
                        event = self._event(data, progress)
                        yield Emit(event)
                        if event.type == "result":
                            yield Close()
                            return
                raise ConnectionFailed("the stream of events ended before its result")
            except ConnectionFailed as error:
                yield Close()
                pause = failures.pause_s()
                if pause is None:
                    if progress.execution_id is None:
                        raise
                    raise _broken(progress, str(error)) from error
                yield Sleep(pause)
            except ApiError as error:
                if not resumed:
                    raise
                unknown = "the server no longer knows it, it was probably restarted"
                raise _broken(progress, unknown if isinstance(error, NotFound) else str(error)) from error
            if progress.execution_id is not None:
                request = _follow(progress.execution_id, progress.after)
                resumed = True

    def _event(self, data: Json, progress: Progress[E]) -> Event[E]:
        progress.after = data["seq"]
        event: Event[E] = Event(data["seq"], data["type"], data["data"])
        if event.type == "started":
            progress.execution_id = _json.maybe_text(event.data, "id") or progress.execution_id
        elif event.type == "result":
            progress.execution = event.execution = self._execution(event.data)
            progress.execution_id = progress.execution.id
        return event

    def wait(self, execution_id: str) -> Steps[E]:
        """The execution when it has ended. Its events go by unseen."""
        progress: Progress[E] = Progress()
        yield from _unseen(self.follow(execution_id, 0, progress))
        assert progress.execution is not None
        return progress.execution

    def execution(self, execution_id: str) -> Steps[E]:
        return self._execution((yield from self._get(_execution(execution_id))))

    def executions(self, status: Optional[str], session_id: Optional[str], most: Optional[int]) -> Steps[list[E]]:
        """At most `most` executions, newest first."""
        found: list[E] = []
        cursor: Optional[str] = None
        while most is None or len(found) < most:
            limit = 100 if most is None else min(most - len(found), 100)
            page = yield from self._get(
                "/v1/executions", status=status, session_id=session_id, limit=limit, cursor=cursor
            )
            found += [self._execution(data) for data in _json.objects(page, "executions")]
            cursor = _json.maybe_text(page, "next_cursor")
            if cursor is None:
                break
        return found

    def cancel(self, execution_id: str) -> Steps[E]:
        return self._execution((yield from self._post(f"{_execution(execution_id)}/cancel", repeatable=True)))

    def send_stdin(self, execution_id: str, data: Union[str, bytes], eof: bool) -> Steps[None]:
        piece: Json = {"data": data} if isinstance(data, str) else {"data_base64": base64.b64encode(data).decode()}
        # Not repeatable: the text would be there twice.
        yield from self.send(post(f"{_execution(execution_id)}/stdin", {**piece, "eof": eof}, repeatable=False))

    def output_page(self, execution_id: str, stream: str, offset: int, limit: int) -> Steps[OutputPage]:
        return OutputPage.from_json(
            (yield from self._get(f"{_execution(execution_id)}/output", stream=stream, offset=offset, limit=limit))
        )

    def output(self, execution_id: str, stream: str) -> Steps[str]:
        """All that is kept of a stream."""
        pages = []
        offset: Optional[int] = 0
        while offset is not None:
            page = yield from self.output_page(execution_id, stream, offset, _PAGE)
            pages.append(page.text)
            offset = page.next_offset
        return "".join(pages)

    def artifact(self, url: str, sha256: str, sink: Sink) -> Steps[None]:
        path = url if url.startswith("/") else f"/{url}"
        yield from self._download(Request("GET", path), HashedSink(sink, sha256))

    def read_artifact(self, url: str, sha256: str) -> Steps[bytes]:
        sink = MemorySink()
        yield from self.artifact(url, sha256, sink)
        return bytes(sink.content)

    def save_artifact(
        self, url: str, sha256: str, name: str, to: Union[str, os.PathLike[str], IO[bytes]]
    ) -> Steps[Optional[Path]]:
        sink, path = yield from _sink(to, name)
        yield from self.artifact(url, sha256, sink)
        return path

    # Sessions

    def open_session(self, options: Mapping[str, Any]) -> Steps[SessionInfo]:
        given = dict(options)
        key = given.pop("idempotency_key", None) or new_key()
        body = request_body(given, SessionOptions, "session")
        return _session_info((yield from self._post("/v1/sessions", body, repeatable=True, key=key)))

    def session(self, session_id: str) -> Steps[SessionInfo]:
        return _session_info((yield from self._get(_session(session_id))))

    def sessions(self, state: Optional[str]) -> Steps[list[SessionInfo]]:
        page = yield from self._get("/v1/sessions", state=state)
        return [_session_info(data) for data in _json.objects(page, "sessions")]

    def close_session(self, session_id: str) -> Steps[SessionInfo]:
        reply = yield from self.send(Request("DELETE", _session(session_id)))
        return _session_info(reply.json())

    def interrupt(self, session_id: str) -> Steps[SessionInfo]:
        # Not repeatable: the second could meet what runs next.
        return _session_info((yield from self._post(f"{_session(session_id)}/interrupt", repeatable=False)))

    def reset(self, session_id: str) -> Steps[SessionInfo]:
        path = f"{_session(session_id)}/reset"
        return _session_info(
            (yield from self._post(path, repeatable=True, patience_s=self._patience_s + _LONGEST_RUN_S))
        )

    def extend(self, session_id: str, ttl_s: int) -> Steps[SessionInfo]:
        return _session_info(
            (yield from self._post(f"{_session(session_id)}/extend", {"ttl_s": ttl_s}, repeatable=True))
        )

    def pause(self, session_id: str) -> Steps[SessionInfo]:
        return _session_info((yield from self._post(f"{_session(session_id)}/pause", repeatable=True)))

    def resume(self, session_id: str) -> Steps[SessionInfo]:
        return _session_info((yield from self._post(f"{_session(session_id)}/resume", repeatable=True)))

    def variables(self, session_id: str) -> Steps[Json]:
        return _json.mapping((yield from self._get(f"{_session(session_id)}/variables")), "variables")

    def processes(self, session_id: str) -> Steps[list[SandboxProcess]]:
        found = yield from self._get(f"{_session(session_id)}/processes")
        return [SandboxProcess.from_json(data) for data in _json.objects(found, "processes")]

    def session_stdin(self, session_id: str, data: Union[str, bytes], eof: bool) -> Steps[None]:
        info = yield from self.session(session_id)
        if info.running is None:
            raise ValueError(f"nothing runs in session {session_id}, so there is nobody to read; it is {info.state}")
        yield from self.send_stdin(info.running, data, eof)

    # Files of a session

    def upload(self, session_id: str, content: Uploadable, path: Optional[str]) -> Steps[StoredFile]:
        source = yield Work(lambda: Source(content))
        if path is None:
            if source.name is None:
                raise TypeError("upload() needs a path: what is uploaded has no name of its own")
            path = f"uploads/{source.name}"
        elif path.endswith("/") and source.name is not None:
            path += source.name
        request = Request(
            "PUT",
            _file(session_id, path),
            headers={"Content-Type": "application/octet-stream"},
            body=source.held,
            source=None if source.held is not None else source,
            repeatable=source.repeatable,
        )
        return StoredFile.from_json((yield from self.send(request)).json())

    def upload_many(
        self,
        session_id: str,
        sources: Union[str, os.PathLike[str], Mapping[str, Uploadable], Sequence[Any]],
        folder: str,
    ) -> Steps[list[StoredFile]]:
        parts: tuple[Part, ...] = yield Work(lambda: tuple(_parts(sources)))
        if not parts:
            return []
        request = Request(
            "POST",
            f"{_session(session_id)}/files:upload",
            _params({"path": _inside(folder)}),
            parts=parts,
            repeatable=all(part.source.repeatable for part in parts),
        )
        data = (yield from self.send(request)).json()
        return [StoredFile.from_json(stored) for stored in _json.objects(data, "files")]

    def read_file(self, session_id: str, path: str) -> Steps[bytes]:
        sink = MemorySink()
        yield from self._download(Request("GET", _file(session_id, path)), sink)
        return bytes(sink.content)

    def download(
        self, session_id: str, path: str, to: Union[str, os.PathLike[str], IO[bytes]]
    ) -> Steps[Optional[Path]]:
        request = Request("GET", _file(session_id, path))
        sink, target = yield from _sink(to, path.rpartition("/")[2])
        yield from self._download(request, sink)
        return target

    def archive(
        self, session_id: str, to: Union[str, os.PathLike[str], IO[bytes]], path: str, form: Optional[str]
    ) -> Steps[Optional[Path]]:
        if form is None:
            form = "zip" if str(getattr(to, "name", to)).endswith(".zip") else "tar.gz"
        body = {"path": _inside(path), "format": form}
        request = post(f"{_session(session_id)}/files:archive", body, repeatable=True, accept="*/*")
        name = f"{_inside(path).rpartition('/')[2] or session_id}.{form}"
        sink, target = yield from _sink(to, name)
        yield from self._download(request, sink)
        return target

    def list_files(self, session_id: str, path: str, recursive: bool) -> Steps[FileList]:
        return FileList.from_json(
            (
                yield from self._get(
                    f"{_session(session_id)}/files", path=_inside(path) or None, recursive=recursive or None
                )
            )
        )

    def delete_file(self, session_id: str, path: str) -> Steps[None]:
        yield from self.send(Request("DELETE", _file(session_id, path)))

    def _download(self, request: Request, sink: Sink) -> Steps[None]:
        """Writes the body of the answer into `sink`. One that breaks off goes on where it stopped if the file is still the same, and begins
        anew otherwise."""
        failures = Failures(self.retry)
        received = 0
        tag: Optional[str] = None
        try:
            while True:
                asked = request
                if received and tag is not None and request.method == "GET":
                    asked = replace(request, headers={**request.headers, "Range": f"bytes={received}-"})
                try:
                    reply = yield from self._attempt(asked, Open(asked), failures)
                    goes_on = reply.status == 206 and reply.headers.get("etag") == tag
                    if received and not goes_on:
                        if not (yield Work(sink.restart)):
                            raise ProtocolError(
                                "the file changed while it was downloaded, and what it goes to cannot be rewound"
                            )
                        received, tag = 0, None
                        if reply.status == 206:
                            yield Close()
                            continue
                    tag = reply.headers.get("etag")
                    while (chunk := (yield Read())) is not None:
                        failures.forgotten()
                        received += len(chunk)
                        yield Work(lambda chunk=chunk: sink.write(chunk))  # type: ignore[misc]
                    break
                except ConnectionFailed:
                    yield Close()
                    pause = failures.pause_s()
                    if pause is None:
                        raise
                    yield Sleep(pause)
            yield Work(sink.finish)
        except BaseException:
            sink.abandon()
            raise

    # Templates

    def template(self, name: str, resolved: bool) -> Steps[Template]:
        address = f"/v1/templates/{quote(_id(name), safe='@')}"
        return Template.from_json((yield from self._get(address, resolved=resolved)))

    def templates(self, versions: bool) -> Steps[list[Template]]:
        page = yield from self._get("/v1/templates", versions=versions)
        return [Template.from_json(data) for data in _json.objects(page, "templates")]

    # The server

    def health(self) -> Steps[Health]:
        return Health.from_json((yield from self._get("/health")))

    def ready(self) -> Steps[bool]:
        """Whether executions are accepted now; asked once."""
        reply: Reply = yield Send(Request("GET", "/ready"))
        return reply.status == 200

    def pool(self) -> Steps[Pool]:
        return Pool.from_json((yield from self._get("/v1/pool")))


def new_key() -> str:
    """An Idempotency-Key: the same request sent twice does its work once."""
    return uuid.uuid4().hex


def post(
    path: str,
    body: Optional[Json] = None,
    *,
    repeatable: bool,
    accept: str = "application/json",
    key: Optional[str] = None,
    params: Optional[Mapping[str, str]] = None,
    patience_s: Optional[float] = None,
) -> Request:
    """A POST with a JSON body, written once so that it stays the same when it is sent again."""
    headers = {"Accept": accept}
    content = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        try:
            content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise TypeError(f"cannot be written as JSON: {error}") from error
    if key is not None:
        headers["Idempotency-Key"] = key
    return Request("POST", path, params or {}, headers, content, repeatable=repeatable, patience_s=patience_s)


def _broken(progress: Progress[Any], why: str) -> StreamBroken:
    return StreamBroken(
        f"the events of {progress.execution_id} broke off after number {progress.after}, and could not be taken up again: {why}",
        execution_id=progress.execution_id or "",
        after=progress.after,
    )


def _follow(execution_id: str, after: int) -> Request:
    return Request("GET", f"{_execution(execution_id)}/events", {"after": str(after)}, {"Accept": "text/event-stream"})


def _unseen(steps: Steps[None]) -> Steps[None]:
    """The same steps with nothing emitted."""
    reply: Any = None
    failure: Optional[Exception] = None
    while True:
        try:
            step = steps.send(reply) if failure is None else steps.throw(failure)
        except StopIteration:
            return
        reply = failure = None
        if isinstance(step, Emit):
            continue
        try:
            reply = yield step
        except Exception as error:
            failure = error


def _sink(to: Union[str, os.PathLike[str], IO[bytes]], name: str) -> Steps[tuple[Sink, Optional[Path]]]:
    opened: tuple[Sink, Optional[Path]] = yield Work(lambda: sink_for(to, name))
    return opened


def _params(params: Mapping[str, Any]) -> dict[str, str]:
    texts = {name: value for name, value in params.items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in texts.items()}


def _execution(execution_id: str) -> str:
    return f"/v1/executions/{quote(_id(execution_id), safe='')}"


def _session(session_id: str) -> str:
    return f"/v1/sessions/{quote(_id(session_id), safe='')}"


def _id(text: str) -> str:
    # An empty one would lead to the list.
    if not isinstance(text, str) or not text.strip(". "):
        raise ValueError(f"not an id: {text!r}")
    return text


def _inside(path: str) -> str:
    """A path in the workspace without the workspace's own name; empty for the workspace itself.

    Refused here because an address cannot hold it: `..` would be resolved on the way, and lead elsewhere.
    """
    inner = path.removeprefix("/data") if path == "/data" or path.startswith("/data/") else path
    if inner.startswith("/") and inner == path:
        raise ValueError(f"{path!r} is not in the workspace: paths are relative to it, or begin with /data/")
    parts = [part for part in inner.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"{path!r} must not contain '..'")
    return "/".join(parts)


def _file(session_id: str, path: str) -> str:
    inner = _inside(path)
    if not inner:
        raise ValueError(f"{path!r} names no file")
    return f"{_session(session_id)}/files/{quote(inner, safe='/')}"


def _parts(sources: Union[str, os.PathLike[str], Mapping[str, Uploadable], Sequence[Any]]) -> Iterator[Part]:
    """Files to upload together: by their path below the folder, a list of local files, or a local folder with all that is in it."""
    if isinstance(sources, Mapping):
        for name, content in sources.items():
            yield Part(_inside(name), Source(content))
        return
    if isinstance(sources, Sequence) and not isinstance(sources, (str, bytes)):
        for one in sources:
            source = Source(one)
            if source.name is None:
                raise TypeError("upload_many() needs names: give a mapping from paths to contents")
            yield Part(source.name, source)
        return
    root = Path(sources)  # type: ignore[arg-type]
    if not root.is_dir():
        raise NotADirectoryError(f"{str(root)!r} is no local folder; for single files give a list or a mapping")
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield Part(path.relative_to(root).as_posix(), Source(path))


def _session_info(data: Json) -> SessionInfo:
    if not isinstance(data.get("id"), str):
        raise ProtocolError("the answer is no session; is this the address of a Fumehood server?")
    return SessionInfo.from_json(data)
