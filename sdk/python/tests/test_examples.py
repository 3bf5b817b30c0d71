"""The programs in `examples`, run as they are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from analyze_data import AnalyzeDataTool
from code_executor import Attempt, CodeExecutor, GaveUp
from run_code_tool import RunCodeTool
from table_operation import TableOperationTool, add_total

from fumehood import AsyncClient, Client, SandboxClient

EXAMPLES = Path(__file__).parent.parent / "examples"


def program(url: str, name: str, *arguments: str) -> str:
    environment = {**os.environ, "FUMEHOOD_URL": url}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.csv"
    path.write_text("item,price,quantity\npen,2,3\nink,5,1\n")
    return path


def test_data_is_analysed(url: str, orders: Path) -> None:
    lines = program(url, "analyze_data.py", str(orders)).splitlines()
    assert lines[0].startswith("| item | price |")
    assert len(lines) > 5


def test_a_table_is_changed_and_written(url: str, orders: Path, tmp_path: Path) -> None:
    program(url, "table_operation.py", str(orders), str(tmp_path / "out.csv"))
    assert (tmp_path / "out.csv").read_text() == "item,price,quantity,total\npen,2,3,6\nink,5,1,5\n"


def test_wrong_code_is_corrected(url: str) -> None:
    assert program(url, "code_executor.py").splitlines()[-1].split() == ["1", "2", "4"]


def test_code_is_run_for_a_model(url: str) -> None:
    assert program(url, "run_code_tool.py", "print(6 * 7)") == "42\n"


def test_tools_tell_what_went_wrong(url: str) -> None:
    async def scenario() -> None:
        async with SandboxClient(url) as sandbox:
            answer = await AnalyzeDataTool(sandbox).analyze("/data/missing.csv")
            assert not answer["success"]
            assert "FileNotFoundError" in answer["error"]
            answer = await TableOperationTool(sandbox, add_total).operate(
                "x", ["/data/missing.csv"], "/data/outputs/o.csv"
            )
            assert not answer["success"]
            direct = AnalyzeDataTool(sandbox, lambda _path, _kind: "result = {'data': [1]}")
            assert (await direct.analyze("", ""))["return_value"] == {"data": [1]}

    asyncio.run(scenario())


def test_corrections_are_bounded_and_see_every_attempt(url: str) -> None:
    seen: list[int] = []

    async def hopeless(_task: str, attempts: Sequence[Attempt]) -> str:
        seen.append(len(attempts))
        assert "ZeroDivisionError" in attempts[-1].error
        return "1/0"

    async def scenario() -> None:
        async with SandboxClient(url) as sandbox:
            executor = CodeExecutor(sandbox, hopeless, max_retries=2)
            with pytest.raises(GaveUp, match="3 attempts failed"):
                await executor.execute_analysis("q", "1/0")
            assert not await executor.execute_operation("q", "1/0", "/data/x")
            assert await CodeExecutor(sandbox).execute_operation("q", "open('/data/x', 'w').close()", "/data/x")
            rows = await CodeExecutor(sandbox).execute_analysis("q", "result = {'data': [{'a': 1}], 'shape': [1, 1]}")
            assert rows.to_dict("records") == [{"a": 1}]

    asyncio.run(scenario())
    assert seen == [1, 2, 1, 2]


def test_a_tool_asks_for_approval_and_keeps_its_variables(url: str) -> None:
    async def approve(code: str) -> bool:
        return "rm" not in code

    async def scenario() -> None:
        async with AsyncClient(url) as client:
            tool = RunCodeTool(client, approve)
            assert (await tool.execute("rm -rf")).status == "rejected"
            assert (await tool.execute("x = 1")).summary == "done, nothing was printed"
            assert (await tool.execute("x + 1")).data["result"] == 2
            failed = await tool.execute("1/0")
            assert (failed.status, failed.summary) == ("error", "ZeroDivisionError: division by zero (line 1)")
            assert tool._session is not None
            with Client(url) as other:
                other.attach(tool._session.id).close()
            # The session is gone, and a new one takes its place.
            assert (await tool.execute("6 * 7")).summary == "42"
            await tool.close()

    asyncio.run(scenario())
