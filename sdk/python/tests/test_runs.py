"""Executions in fresh sandboxes, against a real server."""

from __future__ import annotations

import asyncio
import io
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, Callable
from uuid import UUID

import pytest

import fumehood
from fumehood import AsyncClient, Client, Opaque, Output

from .conftest import until


def test_a_run_brings_back_what_code_printed_and_what_it_returned(client: Client) -> None:
    execution = client.run("print('hello')\n6 * 7")
    assert execution.ok
    assert execution.finished
    assert (execution.stdout, execution.result, execution.exit_code) == ("hello\n", 42, 0)
    assert execution.text == "hello\n42"
    assert execution.metrics.duration_ms > 0
    assert execution.isolation.effective == "process"
    assert execution.created_at is not None
    assert abs(execution.created_at - datetime.now(timezone.utc)) < timedelta(minutes=5)
    assert execution.raise_for_outcome() is execution


def test_an_exception_is_a_short_text_and_raises_only_when_asked(client: Client) -> None:
    execution = client.run("print('before')\nx = {}\nx['key']")
    assert not execution.ok
    assert execution.text == "before\nKeyError: 'key' (line 3)"
    assert execution.error is not None
    assert execution.error.traceback[0].startswith("Traceback")
    with pytest.raises(fumehood.CodeError) as caught:
        execution.raise_for_outcome()
    assert caught.value.execution is execution
    with pytest.raises(fumehood.CodeError, match="division by zero"):
        client.run("1/0", check=True)


@pytest.mark.parametrize(
    ("code", "options", "kind", "text"),
    [
        ("import time\ntime.sleep(60)", {"timeout_ms": 200}, fumehood.TimedOut, "200 ms"),
        ("import sys\nsys.exit(3)", {}, fumehood.CodeError, "exit code 3"),
        ("x = bytearray(10**9)", {"limits": {"memory_mb": 128}}, fumehood.FumehoodError, "memory"),
        ("import os\nos.kill(os.getpid(), 11)", {}, fumehood.Crashed, "SIGSEGV"),
    ],
)
def test_each_way_to_end_badly_has_its_exception(
    client: Client, code: str, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match="(?i)" + text):
        client.run(code, check=True, **options)


def test_output_of_a_program_that_fails_is_in_its_text(client: Client) -> None:
    execution = client.run("echo out; echo why >&2; exit 4", language="bash")
    assert execution.text == "out\nwhy\nthe program ended with exit code 4"


def test_an_unknown_option_is_refused_before_anything_is_sent() -> None:
    client = Client("http://127.0.0.1:1")
    with pytest.raises(TypeError, match=r"run\(\) has no option 'timeout'; did you mean 'timeout_ms'"):
        client.run("1", timeout=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'result_var'"):
        client.stream("1", resultvar="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"write \['\*.csv'\]"):
        client.run("1", collect="*.csv")
    with pytest.raises(TypeError, match="code must be text, not bytes"):
        client.run(b"1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        client.run("1", input={1, 2})
    client.close()


def test_a_refusal_names_the_field_and_the_request(client: Client) -> None:
    with pytest.raises(fumehood.InvalidArgument) as caught:
        client.run("1", timeout_ms=0)
    error = caught.value
    assert (error.field, error.status, error.code) == ("timeout_ms", 400, "invalid_argument")
    assert error.request_id is not None
    assert error.request_id in str(error)
    with pytest.raises(fumehood.NotFound):
        client.execution("exe_unknown")
    with pytest.raises(ValueError, match="not an id"):
        client.execution("")


def test_every_field_of_the_request_is_an_option(openapi: dict[str, Any]) -> None:
    from fumehood import options

    schemas = openapi["components"]["schemas"]
    own = {"code", "mode"}
    missing = set(schemas["ExecutionRequest"]["properties"]) - options._names(options.RunOptions) - own
    assert not missing, "fields of the server that options.py lacks"
    assert not set(schemas["SessionRequest"]["properties"]) - options._names(options.SessionOptions)
    assert not set(schemas["LimitsRequest"]["properties"]) - options._names(options.Limits)


def test_callbacks_hear_output_while_code_runs(client: Client) -> None:
    heard: list[tuple[str, str]] = []
    shown: list[Output] = []
    execution = client.run(
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay({'a': 1})\n7",
        on_stdout=lambda text: heard.append(("out", text)),
        on_stderr=lambda text: heard.append(("err", text)),
        on_display=shown.append,
    )
    assert "".join(text for name, text in heard if name == "out") == "out\n"
    assert "".join(text for name, text in heard if name == "err") == "err\n"
    assert shown[0].text == "{'a': 1}"
    assert execution.result == 7


def test_callbacks_of_the_asynchronous_client_may_be_coroutines(url: str) -> None:
    async def scenario() -> list[str]:
        heard: list[str] = []

        async def hear(text: str) -> None:
            heard.append(text)

        async with AsyncClient(url) as client:
            execution = await client.run("print('a')\nprint('b')", on_stdout=hear)
            assert execution.stdout == "".join(heard)
            await client.run("print('c')", on_stdout=heard.append)
        return heard

    assert "".join(asyncio.run(scenario())) == "a\nb\nc\n"


def test_events_come_in_order_and_end_with_the_whole_execution(client: Client) -> None:
    with client.stream("print('x')\nnp.arange(2)") as events:
        assert events.execution_id is None
        seen = list(events)
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert seen[0].type == "started"
    assert "".join(event.text for event in seen if event.type == "stdout") == "x\n"
    assert any(event.type == "warning" and "import" in event.text for event in seen)
    assert seen[-1].type == "result"
    assert events.execution is seen[-1].execution
    assert events.execution is not None
    assert events.execution.warnings[0].code == "auto_import"


def test_leaving_a_stream_ends_neither_the_code_nor_the_events(client: Client) -> None:
    with client.stream("import time\nprint('first')\ntime.sleep(0.2)\nprint('second')") as events:
        for event in events:
            if event.type == "stdout":
                break
    assert events.execution_id is not None
    with pytest.raises(ValueError, match="closed before its end"):
        events.finish()
    rest = list(client.follow(events.execution_id, after=events.after))
    assert rest[0].seq == events.after + 1
    assert rest[-1].execution is not None
    assert rest[-1].execution.stdout == "first\nsecond\n"


def test_a_submitted_run_is_waited_for_and_found_again(client: Client) -> None:
    pending = client.submit("import time\ntime.sleep(0.3)\n'done'")
    assert not pending.finished
    with pytest.raises(fumehood.NotFinished):
        pending.raise_for_outcome()
    assert pending.wait().result == "done"
    assert client.execution(pending.id).result == "done"
    assert pending.refresh().ok
    assert pending.id in [execution.id for execution in client.executions(status="completed", most=50)]
    assert len(client.executions(most=1)) == 1


def test_a_cancelled_run_says_so(client: Client) -> None:
    pending = client.submit("import time\ntime.sleep(60)")
    until(lambda: client.execution(pending.id).status == "running")
    cancelled = pending.cancel().wait()
    assert cancelled.status == "cancelled"
    with pytest.raises(fumehood.Cancelled):
        cancelled.raise_for_outcome()


def test_the_same_key_runs_the_code_once(client: Client) -> None:
    first = client.run("import random\nrandom.random()", idempotency_key="once-" + str(id(client)))
    again = client.run("import random\nrandom.random()", idempotency_key="once-" + str(id(client)))
    assert (again.id, again.result) == (first.id, first.result)
    with pytest.raises(fumehood.Conflict):
        client.run("1", idempotency_key="once-" + str(id(client)))


def test_files_go_in_and_artifacts_come_back(client: Client, tmp_path: Path) -> None:
    local = tmp_path / "local.bin"
    local.write_bytes(b"\x00\xff")
    execution = client.run(
        "from pathlib import Path\nPath('out').mkdir()\n"
        "Path('out/sum.txt').write_text(Path('a.txt').read_text() + Path('b/c.bin').read_bytes().hex() + Path('l').read_bytes().hex())",
        files={"a.txt": "grün ", "b/c.bin": b"\x01", "l": local},
        collect=["out/*"],
        check=True,
    )
    artifact = execution.artifacts["out/sum.txt"]
    assert artifact.read().decode() == "grün 0100ff"
    assert artifact.save(tmp_path) == tmp_path / "sum.txt"
    assert (tmp_path / "sum.txt").read_text(encoding="utf-8") == "grün 0100ff"
    buffer = io.BytesIO()
    assert artifact.save(buffer) is None
    assert buffer.getvalue() == artifact.read()
    assert len(execution.artifacts) == 1
    assert execution.artifacts.paths == ["out/sum.txt"]
    assert "[file out/sum.txt, 12 bytes]" in execution.text
    with pytest.raises(fumehood.NotThere, match=r"no artifact 'x'; there: 'out/sum.txt'"):
        execution.artifacts["x"]
    with pytest.raises(fumehood.NotThere, match="collect"):
        client.run("1").artifacts["x"]


def test_a_figure_is_saved_as_the_image_it_is(client: Client, tmp_path: Path) -> None:
    execution = client.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('Growth')\nplt.show()")
    figure = execution.figures[0]
    assert figure.save(tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert figure.png is not None
    assert execution.text.splitlines()[-1].startswith("[figure 1")
    with pytest.raises(fumehood.NotThere, match="image/png"):
        figure.save(tmp_path / "plot.svg")
    with pytest.raises(ValueError, match=r"should end with one of \.png"):
        figure.save(tmp_path / "plot")


def test_what_a_figure_shows_comes_as_data(client: Client, offers: Callable[[str], None]) -> None:
    offers("format")
    execution = client.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('Growth')\nplt.show()")
    figure = execution.figures[0]
    assert figure.chart is not None
    assert figure.chart["axes"][0]["series"][0]["points"] == [[0.0, 1.0], [1.0, 2.0]]
    assert figure.title == "Growth"
    assert execution.text == "[figure 1: Growth]"


def test_values_come_back_as_what_they_were(client: Client) -> None:
    execution = client.run("""
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from uuid import UUID
import numpy as np
[float("inf"), 2**70, -2**70, 1+2j, Decimal("1.10"), Fraction(1, 3), b"hi", date(2024, 1, 2),
 datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc), timedelta(hours=1.5), UUID(int=1), Path("a/b"), {3, 1},
 {(1, 2): "a"}, np.array([[1, 2], [3, 4]]), range(3), None, True, {"plain": [1.5]}]
""")
    value = execution.value
    assert value[:15] == [
        float("inf"),
        2**70,
        -(2**70),
        1 + 2j,
        Decimal("1.10"),
        Fraction(1, 3),
        b"hi",
        date(2024, 1, 2),
        datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc),
        timedelta(hours=1.5),
        UUID(int=1),
        PurePosixPath("a/b"),
        {1, 3},
        {(1, 2): "a"},
        [[1, 2], [3, 4]],
    ]
    assert isinstance(value[15], Opaque)
    assert str(value[15]) == "range(0, 3)"
    assert value[16:] == [None, True, {"plain": [1.5]}]


def test_a_function_is_called_with_input(client: Client) -> None:
    assert client.run("def handler(input):\n    return input['a'] + 1", input={"a": 1}).result == 2


def test_standard_input_ends_where_it_ends(client: Client) -> None:
    assert client.run("input() + input()", stdin="a\nb\n").result == "ab"


def test_standard_input_can_be_sent_while_code_waits_for_it(client: Client, offers: Callable[[str], None]) -> None:
    offers("/v1/executions/{id}/stdin")
    with client.stream("print(input('name? '))\nimport sys\nprint(len(sys.stdin.read()))", stdin_open=True) as events:
        for event in events:
            if event.type == "started":
                events.send_stdin("Ada\n")
                events.send_stdin(b"rest", eof=True)
        execution = events.finish()
    assert execution.ok, execution.text
    assert execution.stdout.endswith("Ada\n4\n")


TABLE = """
import pandas as pd
df = pd.DataFrame({
    'city': ['Oslo', 'Rome|x', None], 'n': [1, 2, 3], 'x': [1.5, float('inf'), None],
    'when': pd.to_datetime(['2024-01-02', None, '2024-01-03']), 'zoned': pd.date_range('2024-03-30', periods=3, tz='Europe/Paris'),
    'ok': [True, False, True], 'kind': pd.Categorical(['u', 'v', 'u'])}, index=pd.Index([10, 20, 30], name='id'))
df
"""


def test_a_table_becomes_a_data_frame_of_the_same_types(client: Client) -> None:
    import pandas as pd

    table = client.run(TABLE, check=True).dataframe
    assert table is not None
    assert table.complete
    frame = table.to_pandas(complete=True)
    assert frame.shape == table.shape == (3, 7)
    assert list(frame.index) == [10, 20, 30]
    assert frame.index.name == "id"
    assert frame["n"].tolist() == [1, 2, 3]
    assert frame["x"].tolist()[:2] == [1.5, float("inf")]
    assert frame["when"][10] == pd.Timestamp("2024-01-02")
    assert pd.isna(frame["when"][20])
    assert frame["zoned"][30] == pd.Timestamp("2024-04-01", tz="Europe/Paris")
    assert {name: str(dtype) for name, dtype in frame.dtypes.items() if name in ("n", "x", "ok", "kind")} == {
        "n": "int64",
        "x": "float64",
        "ok": "bool",
        "kind": "category",
    }


def test_a_preview_that_is_not_the_whole_table_says_so(client: Client) -> None:
    table = client.run(TABLE, preview_rows=2, check=True).dataframe
    assert table is not None
    assert not table.complete
    assert table.missing == "only the first 2 of 3 rows"
    with pytest.warns(fumehood.PartialTable, match="first 2 of 3 rows"):
        frame = table.to_pandas()
    assert frame.shape == (2, 7)
    assert frame.attrs["fumehood"]["complete"] is False
    with pytest.raises(ValueError, match="preview_rows"):
        table.to_pandas(complete=True)
    assert "Rome\\|x" in table.to_markdown(2)
    assert "first 2 of 3 rows" in table._repr_html_()


@pytest.mark.parametrize(
    "make",
    [
        "pd.DataFrame([[1, 2], [3, 4]], columns=['v', 'v'])",
        "pd.Series([1, 2], name='x')",
        "pd.DataFrame({'a': [1, 2]}, index=pd.MultiIndex.from_tuples([('x', 1), ('y', 2)]))",
        "pd.DataFrame({'t': pd.to_timedelta([1, 2], unit='h'), 'i': pd.array([1, None], dtype='Int64')})",
        "__import__('polars').DataFrame({'a': [1, None], 'b': ['x', 'y'], 'd': [__import__('datetime').date(2024, 1, 2)] * 2})",
        "__import__('numpy').arange(6).reshape(3, 2)",
        "pd.DataFrame({'a': []})",
        "pd.DataFrame()",
    ],
)
def test_every_kind_of_table_becomes_a_data_frame(client: Client, make: str) -> None:
    table = client.run(f"import pandas as pd\n{make}", check=True).dataframe
    assert table is not None
    frame = table.to_pandas()
    assert frame.shape == table.shape
    assert list(frame.columns) == table.columns
    assert len(frame) == len(table.preview)


def test_tables_come_as_markdown_when_asked(client: Client, offers: Callable[[str], None]) -> None:
    offers("format")
    execution = client.run(TABLE, format="markdown", check=True)
    assert execution.dataframe is not None
    assert execution.dataframe.markdown is not None
    assert execution.dataframe.to_markdown() == execution.dataframe.markdown
    assert "| Oslo" in execution.text


def test_output_that_the_result_cuts_is_read_page_by_page(client: Client) -> None:
    execution = client.run("for i in range(3000): print(i)", output={"max_chars": 200})
    whole = "".join(f"{i}\n" for i in range(3000))
    assert len(execution.stdout) < 500
    assert execution.read_output() == whole
    pages = list(execution.pages(size=5000))
    assert [page.offset for page in pages] == [0, 5000, 10000]
    assert "".join(page.text for page in pages) == whole
    assert execution.read_output("stderr") == ""


def test_both_clients_can_do_the_same() -> None:
    import inspect

    from fumehood import aio
    from fumehood import client as blocking

    pairs: list[tuple[Any, Any]] = [
        (blocking.Client, aio.AsyncClient),
        (blocking.Session, aio.AsyncSession),
        (blocking.Files, aio.AsyncFiles),
        (blocking.Execution, aio.AsyncExecution),
        (blocking.Artifact, aio.AsyncArtifact),
        (blocking.EventStream, aio.AsyncEventStream),
    ]
    for one, other in pairs:
        names = [{name for name in vars(kind) if not name.startswith("_")} for kind in (one, other)]
        assert names[0] == names[1]
        for name in names[0]:
            if callable(vars(one)[name]):
                here, there = inspect.signature(vars(one)[name]), inspect.signature(vars(other)[name])
                assert list(here.parameters) == list(there.parameters), (one, name)


def test_the_asynchronous_client_runs_many_at_once(url: str) -> None:
    async def scenario() -> list[Any]:
        async with AsyncClient(url) as client:
            executions = await asyncio.gather(*(client.run(f"{number} * 2", check=True) for number in range(12)))
            artifact = (await client.run("open('a', 'w').write('x')", collect=["a"])).artifacts[0]
            assert await artifact.read() == b"x"
            pending = await client.submit("print(1)\nprint(2)", idempotency_key=None)  # type: ignore[arg-type]
            done = await pending.wait()
            assert [page.text async for page in done.pages(size=2)] == ["1\n", "2\n"]
            assert (await client.health()).status == "healthy"
            assert await client.ready()
            assert (await client.pool()).capacity > 0
            assert "calculator" in [template.name for template in await client.templates()]
            return [execution.result for execution in executions]

    assert asyncio.run(scenario()) == [number * 2 for number in range(12)]


def test_a_template_is_found_by_its_name_and_names_the_version_that_runs(client: Client) -> None:
    calculator = next(template for template in client.templates(versions=True) if template.name == "calculator")
    assert calculator.built_in
    assert calculator.spec["name"] == "calculator"
    assert client.template(str(calculator)) == client.template("calculator") == calculator
    assert "limits" in client.template("calculator", resolved=True).spec
    with pytest.raises(fumehood.NotFound, match="no-such"):
        client.template("no-such")
    execution = client.run("import math\nmath.factorial(5)", template=str(calculator), check=True)
    assert (execution.result, execution.template) == (120, str(calculator))


def test_threads_may_share_a_client(client: Client) -> None:
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda number: client.run(f"{number} * 3", check=True).result, range(16)))
    assert results == [number * 3 for number in range(16)]


def test_nothing_warns_of_connections_left_open(url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Client(url) as client:
            with client.stream("print(1)") as events:
                next(events)
            assert client.ready()
