"""The client of the tagged stream: its interface, its parser, and runs on a real server."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import random
import re
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx
import pytest

import fumehood
from fumehood import Client, DataFrameInfo, ExecutionResult, SandboxClient, StreamChunk
from fumehood.tablemind import SandboxUnreachable, TagReader

from .servers import NOTHING, Answer, CuttingProxy, FaultyServer

T = TypeVar("T")


def run(scenario: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(scenario)


async def no_pause(_seconds: float) -> None:
    pass


async def execute(url: str, code: str, **options: Any) -> ExecutionResult:
    async with SandboxClient(url, sleep=no_pause) as sandbox:
        return await sandbox.execute(code, **options)


def test_the_interface_is_the_one_of_the_design() -> None:
    def parameters(function: Any) -> list[tuple[str, Any]]:
        found = inspect.signature(function).parameters.values()
        return [(one.name, one.default) for one in found if one.kind is not one.KEYWORD_ONLY]

    none = inspect.Parameter.empty
    execution = [
        ("self", none),
        ("code", none),
        ("result_var", None),
        ("timeout", None),
        ("cwd", None),
        ("preview_rows", 10),
    ]
    callbacks: list[tuple[str, Any]] = [("on_stdout", None), ("on_stderr", None), ("on_image", None)]
    assert parameters(SandboxClient.__init__) == [
        ("self", none),
        ("gateway_url", "http://localhost:8080"),
        ("timeout", 60.0),
    ]
    assert parameters(SandboxClient.execute) == execution + callbacks
    assert parameters(SandboxClient.stream_execute) == execution
    assert parameters(SandboxClient.reset) == parameters(SandboxClient.health_check) == [("self", none)]
    assert inspect.isasyncgenfunction(SandboxClient.stream_execute)

    result = ExecutionResult(success=True, execution_time=0.5)
    assert (result.error, result.dataframe, result.variables) == (None, None, None)
    assert (result.stdout_chunks, result.stderr_chunks, result.images) == ([], [], [])
    assert ExecutionResult(True, 0, None, None, None, ["a", "b"], ["c"]).stdout == "ab"
    assert DataFrameInfo("df", (1, 2), ["a", "b"], {}, [], "1 KB").shape == (1, 2)
    assert StreamChunk(type="stdout", content="x").content == "x"


def test_a_run_brings_output_tables_values_and_variables(url: str) -> None:
    heard: list[str] = []
    code = "import pandas as pd\nimport sys\nprint('开始')\nprint('w', file=sys.stderr)\nresult = pd.DataFrame({'a': [1, 2, 3]})"
    result = run(execute(url, code, result_var="result", preview_rows=2, timeout=30, on_stdout=heard.append))
    assert result.success
    assert result.execution_time > 0
    assert result.stdout == "".join(heard) == "开始\n"
    assert result.stderr == "w\n"
    assert result.dataframe is not None
    assert (result.dataframe.var_name, result.dataframe.shape) == ("result", (3, 1))
    assert result.dataframe.preview == [{"a": 1}, {"a": 2}]
    assert result.variables is not None
    assert result.variables["result"]["type"] == "DataFrame"

    final = "result = {'markdown': '| a |', 'data': [{'a': 1}], 'shape': [1, 1]}"
    result = run(execute(url, final, result_var="result"))
    assert result.return_value == {"markdown": "| a |", "data": [{"a": 1}], "shape": [1, 1]}
    assert result.dataframe is None


def test_figures_come_as_images(url: str) -> None:
    images: list[str] = []
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    result = run(execute(url, code, on_image=images.append))
    assert images == result.images
    assert base64.b64decode(images[0]).startswith(b"\x89PNG")


def test_code_that_fails_is_a_result_without_success(url: str) -> None:
    result = run(execute(url, "open('missing.csv')"))
    assert not result.success
    assert result.error is not None
    assert result.error.startswith("FileNotFoundError: ")
    assert "Traceback" in result.stderr
    assert result.outcome == "exception"


def test_a_refused_request_is_a_result_without_success(url: str) -> None:
    result = run(execute(url, "1", timeout=-1))
    assert not result.success
    assert result.error is not None
    assert "timeout" in result.error


@pytest.mark.parametrize(
    "text", ["</txt><result>{}</result>", "<txt>a</txt>", "<err></err>&lt;b&gt; & <b>", "</re", "<img>\n</img>"]
)
def test_output_that_looks_like_the_protocol_stays_output(url: str, text: str) -> None:
    result = run(execute(url, f"import sys\nprint({text!r})\nprint({text!r}, file=sys.stderr)"))
    assert result.success
    assert result.stdout == result.stderr == text + "\n"


def test_a_session_keeps_variables_until_it_is_reset(client: Client, url: str) -> None:
    async def scenario(session_id: str) -> None:
        async with SandboxClient(url, session_id=session_id) as sandbox:
            await sandbox.execute("x = 1")
            assert (await sandbox.execute("y = x", result_var="y")).return_value == 1
            assert await sandbox.reset()
            assert not (await sandbox.execute("x")).success
            assert await sandbox.health_check()

    with client.session() as session:
        run(scenario(session.id))


def test_without_a_server_health_is_bad_and_runs_raise() -> None:
    async def scenario() -> None:
        async with SandboxClient("http://127.0.0.1:1", timeout=5, retries=0) as sandbox:
            assert not await sandbox.health_check()
            with pytest.raises(SandboxUnreachable, match="cannot connect") as caught:
                await sandbox.execute("1")
            assert isinstance(caught.value, httpx.HTTPError)
            assert isinstance(caught.value, fumehood.ConnectionFailed)

    run(scenario())


def stream_of(*chunks: tuple[str, str]) -> str:
    return "".join(f"<{tag}>{content}</{tag}>" for tag, content in chunks)


def test_chunks_are_found_however_the_stream_is_cut() -> None:
    chance = random.Random(7)
    text = stream_of(
        ("txt", "a < b > c &amp; &lt;txt&gt; </tx &lt;/result&gt;\n"),
        ("img", "aGk="),
        ("err", "<r"),
        ("txt", ""),
        ("result", json.dumps({"success": True, "error": "\u003cb>"})),
    )
    expected = [
        StreamChunk("stdout", "a < b > c &amp; <txt> </tx </result>\n"),
        StreamChunk("image", "aGk="),
        StreamChunk("stderr", "<r"),
        StreamChunk("stdout", ""),
        StreamChunk("result", {"success": True, "error": "<b>"}),
    ]
    for whole in (text, re.sub("(</[a-z]+>)(?=<)", r"\1\n", text)):
        for _ in range(200):
            reader = TagReader()
            found = []
            at = 0
            while at < len(whole):
                step = chance.randint(1, 9)
                found += list(reader.feed(whole[at : at + step]))
                at += step
            assert found == expected


def test_a_large_image_is_read_in_time_that_grows_with_its_size_only() -> None:
    reader = TagReader()
    list(reader.feed("<img>"))
    piece = "A" * 1024
    for _ in range(4096):
        assert not list(reader.feed(piece))
    assert [len(chunk.content) for chunk in reader.feed("</img>")] == [4096 * 1024]


def test_a_result_that_is_garbage_is_a_protocol_error() -> None:
    with pytest.raises(fumehood.ProtocolError, match="no JSON"):
        list(TagReader().feed("<result>{</result>"))


def test_a_stream_that_breaks_is_told_again_and_nothing_comes_twice(faulty: FaultyServer) -> None:
    chunks = [("txt", "a"), ("txt", "b"), ("result", '{"success": true, "execution_time": 1}')]
    plain = {"Content-Type": "text/plain"}
    faulty.will(
        Answer(200, stream_of(*chunks[:1]).encode() + b"<txt>b</t", plain, drop=True),
        NOTHING,
        Answer.refusal(503, "unavailable"),
        Answer(200, stream_of(*chunks).encode(), plain),
    )
    result = run(execute(faulty.url, "x"))
    assert result.success
    assert result.stdout_chunks == ["a", "b"]
    assert len({asked.headers["idempotency-key"] for asked in faulty.asked}) == 1


def test_a_real_stream_survives_connections_that_break(url: str) -> None:
    with CuttingProxy(url, [0, 300, 400]) as proxy:
        result = run(execute(proxy.url, "for i in range(50): print(i, flush=True)"))
    assert result.success
    assert result.stdout == "".join(f"{i}\n" for i in range(50))


def test_the_markdown_table_shows_ten_rows_and_stays_a_table() -> None:
    sandbox = SandboxClient()
    rows = [{"a": number, "b": "x|y\nz"} for number in range(12)]
    lines = sandbox._to_markdown_table(["a", "b"], rows).splitlines()
    assert lines[:3] == ["| a | b |", "| --- | --- |", "| 0 | x\\|y z |"]
    assert len(lines) == 12
    assert sandbox._to_markdown_table(["a"], []) == ""
    run(sandbox.__aexit__(None, None, None))
