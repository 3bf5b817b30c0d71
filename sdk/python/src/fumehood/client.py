"""The client with blocking calls."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union

import httpx

from . import _transport
from ._json import Json
from ._operations import Operations, Progress
from ._sources import Uploadable
from ._steps import Close, Emit, Open, Read, Request, Retry, Send, Sleep, Step, Steps, Work, concluded
from ._transport import HTTPX_ERRORS, Listeners, Settings
from .execution import ArtifactRecord, Event, ExecutionRecord, Output, OutputPage, Variable, artifact_fields
from .records import FileList, Health, Pool, SandboxProcess, SessionInfo, StoredFile, Template

if TYPE_CHECKING:
    import os

    from typing_extensions import Unpack

    from .options import RunOptions, SessionOptions, SessionRunOptions

T = TypeVar("T")


@dataclass
class Artifact(ArtifactRecord):
    """A file that an execution left."""

    _client: Client = field(repr=False, compare=False)

    def read(self) -> bytes:
        """Its content, checked against `sha256`."""
        return self._client._do(self._client._operations.read_artifact(self.url, self.sha256))

    def save(self, to: Union[str, os.PathLike[str], IO[bytes]] = ".") -> Optional[Path]:
        """Writes it to a path, into a folder, or into an open file; returns the path. It appears when it is whole and has the hash it should have."""
        return self._client._do(self._client._operations.save_artifact(self.url, self.sha256, self.name, to))


class Execution(ExecutionRecord[Artifact]):
    """One run of code, with what can be asked for afterwards."""

    _client: Client

    @classmethod
    def bound(cls, data: Json, client: Client) -> Execution:
        """From the object that the server sends."""
        execution = cls.parse(data, lambda about: Artifact(*artifact_fields(about), client))
        execution._client = client
        return execution

    def refresh(self) -> Execution:
        """The execution as it is now."""
        return self._client.execution(self.id)

    def wait(self) -> Execution:
        """The execution when it has ended."""
        return self if self.finished else self._client.wait(self.id)

    def cancel(self) -> Execution:
        return self._client.cancel(self.id)

    def read_output(self, stream: str = "stdout") -> str:
        """All of `stdout` or `stderr` that the server keeps, also where `output={"max_chars": …}` had the result show less."""
        return self._client._do(self._client._operations.output(self.id, stream))

    def pages(self, stream: str = "stdout", *, size: int = 10_000) -> Iterator[OutputPage]:
        """The same, page by page, each of at most `size` characters."""
        offset: Optional[int] = 0
        while offset is not None:
            page = self._client.output(self.id, stream, offset=offset, limit=size)
            yield page
            offset = page.next_offset


class EventStream(Iterator[Event[Execution]]):
    """Events of one execution, as they happen; the last is `result`.

    The code starts when the first event is asked for. Leaving early does not end the code: that does `cancel()`.
    """

    def __init__(self, client: Client, steps: Steps[None], progress: Progress[Execution]) -> None:
        self._client = client
        self._events = client._driver.items(steps)
        self._progress = progress

    def __next__(self) -> Event[Execution]:
        event: Event[Execution] = next(self._events)
        return event

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops listening."""
        self._events.close()

    @property
    def execution_id(self) -> Optional[str]:
        """Known from the first event on."""
        return self._progress.execution_id

    @property
    def after(self) -> int:
        """Number of the last event that came."""
        return self._progress.after

    @property
    def execution(self) -> Optional[Execution]:
        """The whole execution, once `result` has come."""
        return self._progress.execution

    def finish(self) -> Execution:
        """Listens to the end and returns the execution."""
        for _ in self:
            pass
        if self.execution is None:
            raise ValueError("the stream was closed before its end; client.wait(execution_id) has the execution")
        return self.execution

    def send_stdin(self, data: Union[str, bytes], *, eof: bool = False) -> None:
        """More standard input, for a run with `stdin_open=True`; after `eof` there is no more."""
        self._client.send_stdin(self._id(), data, eof=eof)

    def cancel(self) -> Execution:
        """Ends the run."""
        return self._client.cancel(self._id())

    def _id(self) -> str:
        if self.execution_id is None:
            raise ValueError("the run has not begun: it does with the first event")
        return self.execution_id


class Files:
    """Files of a session. Paths are relative to the workspace, or begin with `/data/`."""

    def __init__(self, client: Client, session_id: str) -> None:
        self._client = client
        self._id = session_id

    def upload(self, content: Uploadable, path: Optional[str] = None) -> StoredFile:
        """Stores a local file (by its path), bytes, or what an open file has left, in pieces.

        It is called `path`, by default `uploads/` and its own name; a `path` that ends with a slash is the folder. Folders on the way are made.
        """
        return self._client._do(self._client._operations.upload(self._id, content, path))

    def write(self, path: str, content: Union[str, bytes]) -> StoredFile:
        """Stores text (as UTF-8) or bytes."""
        return self.upload(content.encode() if isinstance(content, str) else content, path)

    def upload_many(
        self, sources: Union[str, os.PathLike[str], Mapping[str, Uploadable], Sequence[Any]], folder: str = "uploads"
    ) -> list[StoredFile]:
        """Stores several files in one request: a mapping from paths below `folder` to contents, a list of local files, or a local folder."""
        return self._client._do(self._client._operations.upload_many(self._id, sources, folder))

    def read(self, path: str) -> bytes:
        """Content of a file."""
        return self._client._do(self._client._operations.read_file(self._id, path))

    def read_text(self, path: str) -> str:
        """The same as text, from UTF-8."""
        return self.read(path).decode()

    def download(self, path: str, to: Union[str, os.PathLike[str], IO[bytes]] = ".") -> Optional[Path]:
        """Writes a file to a local path, into a folder, or into an open file, in pieces; returns the path. It appears when it is whole."""
        return self._client._do(self._client._operations.download(self._id, path, to))

    def archive(
        self, to: Union[str, os.PathLike[str], IO[bytes]] = ".", path: str = "", *, format: Optional[str] = None
    ) -> Optional[Path]:
        """Downloads a folder, by default the whole workspace, as `tar.gz` or `zip`: as the name of `to` says, or `format`."""
        return self._client._do(self._client._operations.archive(self._id, to, path, format))

    def delete(self, path: str) -> None:
        """Removes a file, or a folder with everything in it."""
        self._client._do(self._client._operations.delete_file(self._id, path))

    def list(self, path: str = "", *, recursive: bool = False) -> FileList:
        """What is in a folder."""
        return self._client._do(self._client._operations.list_files(self._id, path, recursive))


class Session:
    """An interpreter that keeps variables and files from one run to the next.

    As a context manager it is closed at the end, unless it came from `attach`.
    """

    def __init__(self, client: Client, info: SessionInfo, *, owned: bool) -> None:
        self._client = client
        self._operations = client._operations
        self._owned = owned
        self.id = info.id
        self.info = info
        """As it was when something was last asked of it; `refresh()` asks anew."""
        self.files = Files(client, info.id)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self._owned:
            return
        try:
            self.close()
        except Exception:
            # What went wrong inside is what the caller has to see.
            if error is None:
                raise

    def run(
        self,
        code: str = "",
        *,
        on_stdout: Optional[Callable[[str], Any]] = None,
        on_stderr: Optional[Callable[[str], Any]] = None,
        on_display: Optional[Callable[[Output], Any]] = None,
        check: bool = False,
        **options: Unpack[SessionRunOptions],
    ) -> Execution:
        """Runs code here, after what runs and waits; otherwise as `Client.run`."""
        return self._client._run(code, options, self.id, Listeners(on_stdout, on_stderr, on_display), check)

    def stream(self, code: str = "", **options: Unpack[SessionRunOptions]) -> EventStream:
        """Runs code here, event by event."""
        return self._client._stream(code, options, self.id)

    def submit(self, code: str = "", **options: Unpack[SessionRunOptions]) -> Execution:
        """Begins a run here and returns at once; `wait()` of what it returns has the end."""
        return self._client._do(self._operations.submit(code, options, self.id))

    def executions(self, *, status: Optional[str] = None, most: Optional[int] = None) -> list[Execution]:
        """Runs of this session, newest first."""
        return self._client.executions(status=status, session_id=self.id, most=most)

    def stdin(self, data: Union[str, bytes], *, eof: bool = False) -> None:
        """More standard input for what runs now with `stdin_open=True`."""
        self._client._do(self._operations.session_stdin(self.id, data, eof))

    def interrupt(self) -> SessionInfo:
        """As Ctrl-C: the code gets a KeyboardInterrupt, variables stay."""
        return self._now(self._operations.interrupt(self.id))

    def reset(self) -> SessionInfo:
        """A fresh interpreter, after what runs and waits; files stay."""
        return self._now(self._operations.reset(self.id))

    def extend(self, ttl_s: int) -> SessionInfo:
        """Has it end so many seconds from now instead."""
        return self._now(self._operations.extend(self.id, ttl_s))

    def pause(self) -> SessionInfo:
        """Has it stand still until `resume()`."""
        return self._now(self._operations.pause(self.id))

    def resume(self) -> SessionInfo:
        return self._now(self._operations.resume(self.id))

    def variables(self) -> dict[str, Variable]:
        """Variables as they were after the last run."""
        return {
            name: Variable.from_json(about)
            for name, about in self._client._do(self._operations.variables(self.id)).items()
        }

    def processes(self) -> list[SandboxProcess]:
        """What runs in it now, as the host sees it: its interpreter, and what code has left running."""
        return self._client._do(self._operations.processes(self.id))

    def refresh(self) -> SessionInfo:
        """The session as it is now."""
        return self._now(self._operations.session(self.id))

    def close(self) -> SessionInfo:
        """Ends it with everything in it; once more does nothing."""
        return self._now(self._operations.close_session(self.id))

    def _now(self, steps: Steps[SessionInfo]) -> SessionInfo:
        self.info = self._client._do(steps)
        return self.info

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.info.state}>"


class Client:
    """A Fumehood server, asked with blocking calls. Threads may share one.

    Args:
        base_url: where the server is; `FUMEHOOD_URL`, else http://127.0.0.1:8080.
        api_key: `FUMEHOOD_API_KEY` by default; none is needed on the server's own machine unless it has keys.
        timeout_s: how long the server may be silent. Runs have a limit of their own, `timeout_ms`, which comes on top.
        retries: how often a request is sent again; or a `Retry` with all that can be said about it.
        transport: of httpx, in place of the network.
        sleep: waits for so many seconds between tries.
    """

    def __init__(
        self,
        base_url: Optional[str] = None,
        api_key: Optional[str] = None,
        *,
        timeout_s: float = 60.0,
        retries: Union[int, Retry] = 4,
        transport: Optional[httpx.BaseTransport] = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        settings = Settings.of(base_url, api_key, timeout_s, retries)
        self.base_url = settings.base_url
        self._driver = _Driver(httpx.Client(transport=transport, **settings.arguments()), settings, sleep)
        self._operations: Operations[Execution] = Operations(
            settings.retry, settings.timeout_s, lambda data: Execution.bound(data, self)
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Sessions go on."""
        self._driver.http.close()

    def run(
        self,
        code: str = "",
        *,
        on_stdout: Optional[Callable[[str], Any]] = None,
        on_stderr: Optional[Callable[[str], Any]] = None,
        on_display: Optional[Callable[[Output], Any]] = None,
        check: bool = False,
        **options: Unpack[RunOptions],
    ) -> Execution:
        """Runs code in a fresh sandbox and returns the execution, whether it ended well or not.

        Options are those of the HTTP interface: `timeout_ms`, `files`, `collect`, `result_var`, `limits` and so on (`RunOptions`). Callbacks
        are called while it runs. With `check` a run that does not end well raises `ExecutionFailed`.
        """
        return self._run(code, options, None, Listeners(on_stdout, on_stderr, on_display), check)

    def stream(self, code: str = "", **options: Unpack[RunOptions]) -> EventStream:
        """Runs code in a fresh sandbox, event by event."""
        return self._stream(code, options, None)

    def submit(self, code: str = "", **options: Unpack[RunOptions]) -> Execution:
        """Begins a run and returns at once; `wait()` of what it returns has the end."""
        return self._do(self._operations.submit(code, options))

    def execution(self, execution_id: str) -> Execution:
        """An execution as it is now."""
        return self._do(self._operations.execution(execution_id))

    def executions(
        self, *, status: Optional[str] = None, session_id: Optional[str] = None, most: Optional[int] = None
    ) -> list[Execution]:
        """Executions that the server keeps, newest first; all of them unless `most` is given."""
        return self._do(self._operations.executions(status, session_id, most))

    def wait(self, execution_id: str) -> Execution:
        """An execution when it has ended."""
        return self._do(self._operations.wait(execution_id))

    def follow(self, execution_id: str, *, after: int = 0) -> EventStream:
        """The events of an execution with numbers above `after`: those that were, then those to come."""
        progress: Progress[Execution] = Progress()
        return EventStream(self, self._operations.follow(execution_id, after, progress), progress)

    def cancel(self, execution_id: str) -> Execution:
        """Ends an execution that runs or waits; one that has ended stays as it is."""
        return self._do(self._operations.cancel(execution_id))

    def send_stdin(self, execution_id: str, data: Union[str, bytes], *, eof: bool = False) -> None:
        """More standard input for a run with `stdin_open=True`; after `eof` there is no more."""
        self._do(self._operations.send_stdin(execution_id, data, eof))

    def output(self, execution_id: str, stream: str = "stdout", *, offset: int = 0, limit: int = 10_000) -> OutputPage:
        """A page of what is kept of `stdout` or `stderr`, in characters."""
        return self._do(self._operations.output_page(execution_id, stream, offset, limit))

    def session(self, **options: Unpack[SessionOptions]) -> Session:
        """Opens a session; best as a context manager, which closes it at the end."""
        return Session(self, self._do(self._operations.open_session(options)), owned=True)

    def attach(self, session_id: str) -> Session:
        """A session that exists; it is not closed at the end of a `with`."""
        return Session(self, self._do(self._operations.session(session_id)), owned=False)

    def sessions(self, *, state: Optional[str] = None) -> list[SessionInfo]:
        """Sessions, newest first; those that ended stay for a while."""
        return self._do(self._operations.sessions(state))

    def template(self, name: str, *, resolved: bool = False) -> Template:
        """A template by `name` or `name@version`; `resolved` puts in what it extends."""
        return self._do(self._operations.template(name, resolved))

    def templates(self, *, versions: bool = False) -> list[Template]:
        """Templates that runs and sessions can name, the built-in ones first: the newest version of each, or every one."""
        return self._do(self._operations.templates(versions))

    def health(self) -> Health:
        return self._do(self._operations.health())

    def ready(self) -> bool:
        """Whether the server takes executions now."""
        return self._do(self._operations.ready())

    def pool(self) -> Pool:
        return self._do(self._operations.pool())

    def _do(self, steps: Steps[T]) -> T:
        return self._driver.value(steps)

    def _run(
        self, code: str, options: Any, session_id: Optional[str], listeners: Listeners[Execution], check: bool
    ) -> Execution:
        if listeners:
            with self._stream(code, options, session_id) as events:
                for event in events:
                    listeners.hear(event)
                execution = events.finish()
        else:
            execution = self._do(self._operations.run(code, options, session_id))
        return execution.raise_for_outcome() if check else execution

    def _stream(self, code: str, options: Any, session_id: Optional[str]) -> EventStream:
        progress: Progress[Execution] = Progress()
        return EventStream(self, self._operations.stream(code, options, session_id, progress), progress)

    def __repr__(self) -> str:
        return f"<Client {self.base_url}>"


class _Driver:
    """Performs steps with blocking calls."""

    def __init__(self, http: httpx.Client, settings: Settings, sleep: Callable[[float], None]) -> None:
        self.http = http
        self.settings = settings
        self.sleep = sleep

    def value(self, steps: Steps[T]) -> T:
        """What the steps end with."""
        items = self.items(concluded(steps))
        try:
            value: T = next(items)
            return value
        finally:
            items.close()

    def items(self, steps: Steps[None]) -> Generator[Any, None, None]:
        """What the steps emit."""
        exchange = _Exchange(self)
        brought: Any = None
        failed: Optional[Exception] = None
        try:
            while True:
                try:
                    step = steps.send(brought) if failed is None else steps.throw(failed)
                except StopIteration:
                    return
                brought = failed = None
                if isinstance(step, Emit):
                    yield step.item
                    continue
                try:
                    brought = exchange.perform(step)
                except Exception as error:
                    failed = error
        finally:
            steps.close()
            exchange.close()


class _Exchange:
    """Requests of one operation; at most one answer is open."""

    def __init__(self, driver: _Driver) -> None:
        self._driver = driver
        self._request: Optional[Request] = None
        self._response: Optional[httpx.Response] = None
        self._chunks: Iterator[bytes] = iter(())

    def perform(self, step: Step) -> Any:
        if isinstance(step, Work):
            return step.call()
        if isinstance(step, Sleep):
            return self._driver.sleep(step.seconds)
        if isinstance(step, Close):
            return self.close()
        if isinstance(step, (Send, Open)):
            self._request = step.request
        try:
            if isinstance(step, Read):
                return next(self._chunks, None)
            if isinstance(step, (Send, Open)):
                return self._send(step)
        except HTTPX_ERRORS as error:
            raise _transport.failure(error, self._request, self._driver.settings) from error
        raise AssertionError(step)

    def _send(self, step: Union[Send, Open]) -> Any:
        self.close()
        source = step.request.source
        http = self._driver.http
        with ExitStack() as opened:
            content = source.chunks() if source is not None else None
            request = http.build_request(**_transport.arguments(step.request, self._driver.settings, content, opened))
            response = http.send(request, stream=True)
        if isinstance(step, Open) and response.status_code < 400:
            self._response, self._chunks = response, response.iter_bytes()
            return _transport.reply(response)
        try:
            return _transport.reply(response, response.read())
        finally:
            response.close()

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._response, self._chunks = None, iter(())
