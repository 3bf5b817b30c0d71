"""A client of the tagged stream (`POST /api/v1/exec`), with the interface of the TableMind sandbox design.

New code is better served by `AsyncClient`, which has typed values, files and events that can be taken up again.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union

import httpx

from . import _transport
from ._json import Json
from ._operations import post
from ._steps import Failures, Request, Retry
from ._transport import HTTPX_ERRORS, Settings
from .errors import ApiError, ConnectionFailed, ProtocolError, api_error
from .tables import markdown_table

_TYPES: Mapping[str, str] = {"txt": "stdout", "err": "stderr", "img": "image", "result": "result"}
_OPENINGS: Mapping[str, str] = {f"<{tag}>": tag for tag in _TYPES}
_LONGEST_OPENING = max(map(len, _OPENINGS))
_ESCAPED: Mapping[str, str] = {
    written: tag
    for name in _TYPES
    for written, tag in ((f"&lt;{name}&gt;", f"<{name}>"), (f"&lt;/{name}&gt;", f"</{name}>"))
}
_MARKDOWN_ROWS = 10


@dataclass
class DataFrameInfo:
    """A table: its shape, columns, types and first rows."""

    var_name: str
    shape: tuple[int, int]
    columns: list[str]
    dtypes: dict[str, str]
    preview: list[Json]
    memory_usage: str

    @classmethod
    def from_json(cls, data: Json) -> DataFrameInfo:
        shape = tuple(data.get("shape") or ())
        return cls(
            var_name=data.get("var_name") or "",
            shape=(shape[0], shape[1]) if len(shape) == 2 else (0, 0),
            columns=data.get("columns") or [],
            dtypes=data.get("dtypes") or {},
            preview=data.get("preview") or [],
            memory_usage=data.get("memory_usage") or "",
        )


@dataclass
class ExecutionResult:
    """What came of a run, and what it wrote on the way."""

    success: bool
    execution_time: float
    error: Optional[str] = None
    dataframe: Optional[DataFrameInfo] = None
    variables: Optional[dict[str, Any]] = None
    stdout_chunks: list[str] = field(default_factory=list)
    stderr_chunks: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    """PNGs in base64."""
    return_value: Any = None
    """Value of `result_var` when it is no table."""
    execution_id: Optional[str] = None
    outcome: Optional[str] = None

    @property
    def stdout(self) -> str:
        return "".join(self.stdout_chunks)

    @property
    def stderr(self) -> str:
        return "".join(self.stderr_chunks)


@dataclass
class StreamChunk:
    """A piece of the stream: `type` is `stdout`, `stderr`, `image` or `result`, which comes last and has the parsed object."""

    type: str
    content: Any


class SandboxUnreachable(ConnectionFailed, httpx.TransportError):
    """No answer came. Also an error of httpx, as clients of this interface expect."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        httpx.TransportError.__init__(self, message)
        self.sent = sent


class TagReader:
    """Takes the text of a tagged stream in any pieces and gives its chunks, each once it is whole.

    What stands between chunks is ignored. Output never contains a tag (the server escapes the eight words, and this undoes it), so that the
    first closing tag is the right one.
    """

    def __init__(self) -> None:
        self._tag: Optional[str] = None
        self._content: list[str] = []
        self._pending = ""
        """What is not known yet to be content, or to stand between chunks."""

    def feed(self, text: str) -> Iterator[StreamChunk]:
        self._pending += text
        while self._tag is not None or self._enter():
            tag = self._tag
            assert tag is not None
            closing = f"</{tag}>"
            end = self._pending.find(closing)
            if end < 0:
                # The next piece may complete a closing tag that has begun.
                sure = max(0, len(self._pending) - len(closing) + 1)
                self._content.append(self._pending[:sure])
                self._pending = self._pending[sure:]
                return
            content = "".join(self._content) + self._pending[:end]
            self._tag, self._content, self._pending = None, [], self._pending[end + len(closing) :]
            yield StreamChunk(_TYPES[tag], _content(tag, content))

    def _enter(self) -> bool:
        """Goes to behind the next opening tag, if it is there."""
        found = [(at, opening) for opening in _OPENINGS if (at := self._pending.find(opening)) >= 0]
        if not found:
            self._pending = self._pending[-(_LONGEST_OPENING - 1) :]
            return False
        at, opening = min(found)
        self._tag, self._pending = _OPENINGS[opening], self._pending[at + len(opening) :]
        return True


def _content(tag: str, content: str) -> Any:
    if tag == "img":
        return content.strip()
    if tag == "result":
        try:
            return json.loads(content)
        except ValueError as error:
            raise ProtocolError(f"the result of the stream is no JSON: {content[:200]!r}") from error
    for written, meant in _ESCAPED.items():
        content = content.replace(written, meant)
    return content


class SandboxClient:
    """Runs Python code and follows its output.

    Args:
        gateway_url: where the server is.
        timeout: seconds for a run that states none.
        session_id: a session to run in (`POST /v1/sessions`); without it each run has a fresh sandbox, and nothing stays.
        api_key: `FUMEHOOD_API_KEY` by default.
        retries: how often a request is sent again; or a `Retry`.
        transport: of httpx, in place of the network.
        sleep: waits for so many seconds between tries.
    """

    def __init__(
        self,
        gateway_url: str = "http://localhost:8080",
        timeout: float = 60.0,
        *,
        session_id: Optional[str] = None,
        api_key: Optional[str] = None,
        retries: Union[int, Retry] = 4,
        transport: Optional[httpx.AsyncBaseTransport] = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._settings = Settings.of(gateway_url, api_key, timeout, retries)
        self._sleep = sleep
        self.gateway_url = self._settings.base_url
        self.timeout = timeout
        self.session_id = session_id
        self._client = httpx.AsyncClient(transport=transport, **self._settings.arguments())

    async def execute(
        self,
        code: str,
        result_var: Optional[str] = None,
        timeout: Optional[float] = None,
        cwd: Optional[str] = None,
        preview_rows: int = 10,
        on_stdout: Optional[Callable[[str], None]] = None,
        on_stderr: Optional[Callable[[str], None]] = None,
        on_image: Optional[Callable[[str], None]] = None,
    ) -> ExecutionResult:
        """Runs code; callbacks get output as it comes.

        `result_var` names the variable to bring back, as `dataframe` if it is a table and as `return_value` otherwise. A request that the server
        refuses is a result too, without success and with the reason in `error`.

        Raises:
            SandboxUnreachable: no answer came.
        """
        result = ExecutionResult(success=False, execution_time=0.0)
        collected = {
            "stdout": (result.stdout_chunks, on_stdout),
            "stderr": (result.stderr_chunks, on_stderr),
            "image": (result.images, on_image),
        }
        async for chunk in self.stream_execute(code, result_var, timeout, cwd, preview_rows):
            if chunk.type == "result":
                _conclude(result, chunk.content)
                continue
            chunks, callback = collected[chunk.type]
            chunks.append(chunk.content)
            if callback is not None:
                callback(chunk.content)
        return result

    async def stream_execute(
        self,
        code: str,
        result_var: Optional[str] = None,
        timeout: Optional[float] = None,
        cwd: Optional[str] = None,
        preview_rows: int = 10,
    ) -> AsyncGenerator[StreamChunk, None]:
        """Runs code and yields its output chunk by chunk; the last chunk is the result.

        A connection that breaks is made anew: the server runs the code once, and tells the chunks from the beginning, of which those that were
        seen are passed over.
        """
        seconds = self.timeout if timeout is None else timeout
        body: Json = {
            "code": code,
            "result_var": result_var,
            "timeout": seconds,
            "cwd": cwd,
            "preview_rows": preview_rows,
        }
        if self.session_id is not None:
            body["session_id"] = self.session_id
        request = post(
            "/api/v1/exec",
            body,
            repeatable=True,
            accept="*/*",
            key=uuid.uuid4().hex,
            # Code that prints nothing is silent until its end.
            patience_s=seconds + self._settings.timeout_s,
        )
        failures = Failures(self._settings.retry)
        seen = 0
        while True:
            try:
                passed = 0
                async for chunk in self._chunks(request):
                    passed += 1
                    if passed <= seen:
                        continue
                    seen += 1
                    failures.forgotten()
                    yield chunk
                    if chunk.type == "result":
                        return
                raise SandboxUnreachable("the stream ended before its result")
            except SandboxUnreachable:
                pause = failures.pause_s()
                if pause is None:
                    raise
            except ApiError as error:
                pause = failures.pause_s(error.retry_after_s) if error.status in (429, 502, 503, 504) else None
                if pause is None:
                    yield StreamChunk("result", {"success": False, "execution_time": 0, "error": str(error)})
                    return
            await self._sleep(pause)

    async def _chunks(self, request: Request) -> AsyncGenerator[StreamChunk, None]:
        try:
            with ExitStack() as opened:
                sent = self._client.build_request(**_transport.arguments(request, self._settings, None, opened))
                response = await self._client.send(sent, stream=True)
            try:
                if response.status_code >= 400:
                    raise api_error(response.status_code, _transport.reply(response).headers, await response.aread())
                reader = TagReader()
                async for text in response.aiter_text():
                    for chunk in reader.feed(text):
                        yield chunk
            finally:
                await response.aclose()
        except HTTPX_ERRORS as error:
            failure = _transport.failure(error, request, self._settings)
            raise SandboxUnreachable(str(failure), sent=getattr(failure, "sent", True)) from error

    async def reset(self) -> bool:
        """A fresh interpreter, where there is a session; without one there is nothing to reset."""
        path = "/api/v1/reset" if self.session_id is None else f"/v1/sessions/{self.session_id}/reset"
        response = await self._client.post(path)
        return response.status_code == 200

    async def health_check(self) -> bool:
        """Whether the server answers and is well."""
        try:
            response = await self._client.get("/health")
        except HTTPX_ERRORS:
            return False
        return response.status_code == 200

    def _to_markdown_table(self, columns: list[str], rows: list[Json]) -> str:
        """The first ten rows as a Markdown table; empty without rows."""
        return markdown_table(columns, rows[:_MARKDOWN_ROWS]) if rows else ""

    async def __aenter__(self) -> SandboxClient:
        return self

    async def __aexit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
        await self._client.aclose()


def _conclude(result: ExecutionResult, content: Any) -> None:
    if not isinstance(content, dict):
        raise ProtocolError(f"the result of the stream is no object: {content!r:.200}")
    result.success = content.get("success") is True
    result.execution_time = float(content.get("execution_time") or 0)
    result.error = content.get("error")
    result.variables = content.get("variables")
    result.return_value = content.get("return_value")
    result.execution_id = content.get("execution_id")
    result.outcome = content.get("outcome")
    if isinstance(content.get("dataframe"), dict):
        result.dataframe = DataFrameInfo.from_json(content["dataframe"])
