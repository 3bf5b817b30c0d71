"""The client with `await`, for asyncio. What the methods do stands at their namesakes in `client`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    Callable,
    Optional,
    TypeVar,
    Union,
)

import httpx

from . import _transport
from ._json import Json
from ._operations import Operations, Progress
from ._sources import Source, Uploadable
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
class AsyncArtifact(ArtifactRecord):
    """A file that an execution left."""

    _client: AsyncClient = field(repr=False, compare=False)

    async def read(self) -> bytes:
        return await self._client._do(self._client._operations.read_artifact(self.url, self.sha256))

    async def save(self, to: Union[str, os.PathLike[str], IO[bytes]] = ".") -> Optional[Path]:
        return await self._client._do(self._client._operations.save_artifact(self.url, self.sha256, self.name, to))


class AsyncExecution(ExecutionRecord[AsyncArtifact]):
    """One run of code, with what can be asked for afterwards."""

    _client: AsyncClient

    @classmethod
    def bound(cls, data: Json, client: AsyncClient) -> AsyncExecution:
        """From the object that the server sends."""
        execution = cls.parse(data, lambda about: AsyncArtifact(*artifact_fields(about), client))
        execution._client = client
        return execution

    async def refresh(self) -> AsyncExecution:
        return await self._client.execution(self.id)

    async def wait(self) -> AsyncExecution:
        return self if self.finished else await self._client.wait(self.id)

    async def cancel(self) -> AsyncExecution:
        return await self._client.cancel(self.id)

    async def read_output(self, stream: str = "stdout") -> str:
        return await self._client._do(self._client._operations.output(self.id, stream))

    async def pages(self, stream: str = "stdout", *, size: int = 10_000) -> AsyncIterator[OutputPage]:
        offset: Optional[int] = 0
        while offset is not None:
            page = await self._client.output(self.id, stream, offset=offset, limit=size)
            yield page
            offset = page.next_offset


class AsyncEventStream(AsyncIterator[Event[AsyncExecution]]):
    """Events of one execution, as they happen; the last is `result`.

    The code starts when the first event is asked for. Leaving early does not end the code: that does `cancel()`.
    """

    def __init__(self, client: AsyncClient, steps: Steps[None], progress: Progress[AsyncExecution]) -> None:
        self._client = client
        self._events = client._driver.items(steps)
        self._progress = progress

    async def __anext__(self) -> Event[AsyncExecution]:
        event: Event[AsyncExecution] = await self._events.__anext__()
        return event

    async def __aenter__(self) -> AsyncEventStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._events.aclose()

    @property
    def execution_id(self) -> Optional[str]:
        """Known from the first event on."""
        return self._progress.execution_id

    @property
    def after(self) -> int:
        """Number of the last event that came."""
        return self._progress.after

    @property
    def execution(self) -> Optional[AsyncExecution]:
        """The whole execution, once `result` has come."""
        return self._progress.execution

    async def finish(self) -> AsyncExecution:
        async for _ in self:
            pass
        if self.execution is None:
            raise ValueError("the stream was closed before its end; client.wait(execution_id) has the execution")
        return self.execution

    async def send_stdin(self, data: Union[str, bytes], *, eof: bool = False) -> None:
        await self._client.send_stdin(self._id(), data, eof=eof)

    async def cancel(self) -> AsyncExecution:
        return await self._client.cancel(self._id())

    def _id(self) -> str:
        if self.execution_id is None:
            raise ValueError("the run has not begun: it does with the first event")
        return self.execution_id


class AsyncFiles:
    """Files of a session. Paths are relative to the workspace, or begin with `/data/`."""

    def __init__(self, client: AsyncClient, session_id: str) -> None:
        self._client = client
        self._id = session_id

    async def upload(self, content: Uploadable, path: Optional[str] = None) -> StoredFile:
        return await self._client._do(self._client._operations.upload(self._id, content, path))

    async def write(self, path: str, content: Union[str, bytes]) -> StoredFile:
        return await self.upload(content.encode() if isinstance(content, str) else content, path)

    async def upload_many(
        self, sources: Union[str, os.PathLike[str], Mapping[str, Uploadable], Sequence[Any]], folder: str = "uploads"
    ) -> list[StoredFile]:
        return await self._client._do(self._client._operations.upload_many(self._id, sources, folder))

    async def read(self, path: str) -> bytes:
        return await self._client._do(self._client._operations.read_file(self._id, path))

    async def read_text(self, path: str) -> str:
        return (await self.read(path)).decode()

    async def download(self, path: str, to: Union[str, os.PathLike[str], IO[bytes]] = ".") -> Optional[Path]:
        return await self._client._do(self._client._operations.download(self._id, path, to))

    async def archive(
        self, to: Union[str, os.PathLike[str], IO[bytes]] = ".", path: str = "", *, format: Optional[str] = None
    ) -> Optional[Path]:
        return await self._client._do(self._client._operations.archive(self._id, to, path, format))

    async def delete(self, path: str) -> None:
        await self._client._do(self._client._operations.delete_file(self._id, path))

    async def list(self, path: str = "", *, recursive: bool = False) -> FileList:
        return await self._client._do(self._client._operations.list_files(self._id, path, recursive))


class AsyncSession:
    """An interpreter that keeps variables and files from one run to the next.

    As a context manager it is closed at the end, unless it came from `attach`.
    """

    def __init__(self, client: AsyncClient, info: SessionInfo, *, owned: bool) -> None:
        self._client = client
        self._operations = client._operations
        self._owned = owned
        self.id = info.id
        self.info = info
        """As it was when something was last asked of it; `refresh()` asks anew."""
        self.files = AsyncFiles(client, info.id)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if not self._owned:
            return
        try:
            await self.close()
        except Exception:
            # What went wrong inside is what the caller has to see.
            if error is None:
                raise

    async def run(
        self,
        code: str = "",
        *,
        on_stdout: Optional[Callable[[str], Any]] = None,
        on_stderr: Optional[Callable[[str], Any]] = None,
        on_display: Optional[Callable[[Output], Any]] = None,
        check: bool = False,
        **options: Unpack[SessionRunOptions],
    ) -> AsyncExecution:
        return await self._client._run(code, options, self.id, Listeners(on_stdout, on_stderr, on_display), check)

    def stream(self, code: str = "", **options: Unpack[SessionRunOptions]) -> AsyncEventStream:
        return self._client._stream(code, options, self.id)

    async def submit(self, code: str = "", **options: Unpack[SessionRunOptions]) -> AsyncExecution:
        return await self._client._do(self._operations.submit(code, options, self.id))

    async def executions(self, *, status: Optional[str] = None, most: Optional[int] = None) -> list[AsyncExecution]:
        return await self._client.executions(status=status, session_id=self.id, most=most)

    async def stdin(self, data: Union[str, bytes], *, eof: bool = False) -> None:
        await self._client._do(self._operations.session_stdin(self.id, data, eof))

    async def interrupt(self) -> SessionInfo:
        return await self._now(self._operations.interrupt(self.id))

    async def reset(self) -> SessionInfo:
        return await self._now(self._operations.reset(self.id))

    async def extend(self, ttl_s: int) -> SessionInfo:
        return await self._now(self._operations.extend(self.id, ttl_s))

    async def pause(self) -> SessionInfo:
        return await self._now(self._operations.pause(self.id))

    async def resume(self) -> SessionInfo:
        return await self._now(self._operations.resume(self.id))

    async def variables(self) -> dict[str, Variable]:
        found = await self._client._do(self._operations.variables(self.id))
        return {name: Variable.from_json(about) for name, about in found.items()}

    async def processes(self) -> list[SandboxProcess]:
        return await self._client._do(self._operations.processes(self.id))

    async def refresh(self) -> SessionInfo:
        return await self._now(self._operations.session(self.id))

    async def close(self) -> SessionInfo:
        return await self._now(self._operations.close_session(self.id))

    async def _now(self, steps: Steps[SessionInfo]) -> SessionInfo:
        self.info = await self._client._do(steps)
        return self.info

    def __repr__(self) -> str:
        return f"<AsyncSession {self.id} {self.info.state}>"


class SessionRequest(Awaitable[AsyncSession]):
    """A session to come: `await` it, or use it with `async with`."""

    def __init__(self, opening: Callable[[], Awaitable[AsyncSession]]) -> None:
        self._opening = opening
        self._session: Optional[AsyncSession] = None

    def __await__(self) -> Generator[Any, Any, AsyncSession]:
        return self._opening().__await__()

    async def __aenter__(self) -> AsyncSession:
        self._session = await self
        return self._session

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if self._session is not None:
            await self._session.__aexit__(kind, error, trace)


class AsyncClient:
    """A Fumehood server, asked with `await`; the arguments are those of `Client`. Callbacks may be coroutine functions."""

    def __init__(
        self,
        base_url: Optional[str] = None,
        api_key: Optional[str] = None,
        *,
        timeout_s: float = 60.0,
        retries: Union[int, Retry] = 4,
        transport: Optional[httpx.AsyncBaseTransport] = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        settings = Settings.of(base_url, api_key, timeout_s, retries)
        self.base_url = settings.base_url
        self._driver = _Driver(httpx.AsyncClient(transport=transport, **settings.arguments()), settings, sleep)
        self._operations: Operations[AsyncExecution] = Operations(
            settings.retry, settings.timeout_s, lambda data: AsyncExecution.bound(data, self)
        )

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._driver.http.aclose()

    async def run(
        self,
        code: str = "",
        *,
        on_stdout: Optional[Callable[[str], Any]] = None,
        on_stderr: Optional[Callable[[str], Any]] = None,
        on_display: Optional[Callable[[Output], Any]] = None,
        check: bool = False,
        **options: Unpack[RunOptions],
    ) -> AsyncExecution:
        return await self._run(code, options, None, Listeners(on_stdout, on_stderr, on_display), check)

    def stream(self, code: str = "", **options: Unpack[RunOptions]) -> AsyncEventStream:
        return self._stream(code, options, None)

    async def submit(self, code: str = "", **options: Unpack[RunOptions]) -> AsyncExecution:
        return await self._do(self._operations.submit(code, options))

    async def execution(self, execution_id: str) -> AsyncExecution:
        return await self._do(self._operations.execution(execution_id))

    async def executions(
        self, *, status: Optional[str] = None, session_id: Optional[str] = None, most: Optional[int] = None
    ) -> list[AsyncExecution]:
        return await self._do(self._operations.executions(status, session_id, most))

    async def wait(self, execution_id: str) -> AsyncExecution:
        return await self._do(self._operations.wait(execution_id))

    def follow(self, execution_id: str, *, after: int = 0) -> AsyncEventStream:
        progress: Progress[AsyncExecution] = Progress()
        return AsyncEventStream(self, self._operations.follow(execution_id, after, progress), progress)

    async def cancel(self, execution_id: str) -> AsyncExecution:
        return await self._do(self._operations.cancel(execution_id))

    async def send_stdin(self, execution_id: str, data: Union[str, bytes], *, eof: bool = False) -> None:
        await self._do(self._operations.send_stdin(execution_id, data, eof))

    async def output(
        self, execution_id: str, stream: str = "stdout", *, offset: int = 0, limit: int = 10_000
    ) -> OutputPage:
        return await self._do(self._operations.output_page(execution_id, stream, offset, limit))

    def session(self, **options: Unpack[SessionOptions]) -> SessionRequest:
        """Opens a session: `async with client.session() as session`, or `session = await client.session()`."""
        return SessionRequest(lambda: self._session(self._operations.open_session(options), owned=True))

    def attach(self, session_id: str) -> SessionRequest:
        """A session that exists, likewise; it is not closed at the end of an `async with`."""
        return SessionRequest(lambda: self._session(self._operations.session(session_id), owned=False))

    async def _session(self, steps: Steps[SessionInfo], *, owned: bool) -> AsyncSession:
        return AsyncSession(self, await self._do(steps), owned=owned)

    async def sessions(self, *, state: Optional[str] = None) -> list[SessionInfo]:
        return await self._do(self._operations.sessions(state))

    async def template(self, name: str, *, resolved: bool = False) -> Template:
        """A template by `name` or `name@version`; `resolved` puts in what it extends."""
        return await self._do(self._operations.template(name, resolved))

    async def templates(self, *, versions: bool = False) -> list[Template]:
        """Templates that runs and sessions can name, the built-in ones first: the newest version of each, or every one."""
        return await self._do(self._operations.templates(versions))

    async def health(self) -> Health:
        return await self._do(self._operations.health())

    async def ready(self) -> bool:
        return await self._do(self._operations.ready())

    async def pool(self) -> Pool:
        return await self._do(self._operations.pool())

    async def _do(self, steps: Steps[T]) -> T:
        return await self._driver.value(steps)

    async def _run(
        self, code: str, options: Any, session_id: Optional[str], listeners: Listeners[AsyncExecution], check: bool
    ) -> AsyncExecution:
        if listeners:
            async with self._stream(code, options, session_id) as events:
                async for event in events:
                    heard = listeners.hear(event)
                    if inspect.isawaitable(heard):
                        await heard
                execution = await events.finish()
        else:
            execution = await self._do(self._operations.run(code, options, session_id))
        return execution.raise_for_outcome() if check else execution

    def _stream(self, code: str, options: Any, session_id: Optional[str]) -> AsyncEventStream:
        progress: Progress[AsyncExecution] = Progress()
        return AsyncEventStream(self, self._operations.stream(code, options, session_id, progress), progress)

    def __repr__(self) -> str:
        return f"<AsyncClient {self.base_url}>"


class _Driver:
    """Performs steps with `await`."""

    def __init__(self, http: httpx.AsyncClient, settings: Settings, sleep: Callable[[float], Awaitable[Any]]) -> None:
        self.http = http
        self.settings = settings
        self.sleep = sleep

    async def value(self, steps: Steps[T]) -> T:
        """What the steps end with."""
        items = self.items(concluded(steps))
        try:
            value: T = await items.__anext__()
            return value
        finally:
            await items.aclose()

    async def items(self, steps: Steps[None]) -> AsyncGenerator[Any, None]:
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
                    brought = await exchange.perform(step)
                except Exception as error:
                    failed = error
        finally:
            steps.close()
            await exchange.close()


class _Exchange:
    """Requests of one operation; at most one answer is open."""

    def __init__(self, driver: _Driver) -> None:
        self._driver = driver
        self._request: Optional[Request] = None
        self._response: Optional[httpx.Response] = None
        self._chunks: Optional[AsyncIterator[bytes]] = None

    async def perform(self, step: Step) -> Any:
        if isinstance(step, Work):
            return await asyncio.to_thread(step.call)
        if isinstance(step, Sleep):
            return await self._driver.sleep(step.seconds)
        if isinstance(step, Close):
            return await self.close()
        if isinstance(step, (Send, Open)):
            self._request = step.request
        try:
            if isinstance(step, Read):
                return await self._read()
            if isinstance(step, (Send, Open)):
                return await self._send(step)
        except HTTPX_ERRORS as error:
            raise _transport.failure(error, self._request, self._driver.settings) from error
        raise AssertionError(step)

    async def _read(self) -> Optional[bytes]:
        if self._chunks is None:
            return None
        try:
            return await self._chunks.__anext__()
        except StopAsyncIteration:
            return None

    async def _send(self, step: Union[Send, Open]) -> Any:
        await self.close()
        source = step.request.source
        http = self._driver.http
        with ExitStack() as opened:
            content = _chunks(source) if source is not None else None
            request = http.build_request(**_transport.arguments(step.request, self._driver.settings, content, opened))
            response = await http.send(request, stream=True)
        if isinstance(step, Open) and response.status_code < 400:
            self._response, self._chunks = response, response.aiter_bytes()
            return _transport.reply(response)
        try:
            return _transport.reply(response, await response.aread())
        finally:
            await response.aclose()

    async def close(self) -> None:
        response, self._response, self._chunks = self._response, None, None
        if response is not None:
            await response.aclose()


async def _chunks(source: Source) -> AsyncIterator[bytes]:
    """What a source has, read beside the event loop."""
    chunks = source.chunks()
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk
