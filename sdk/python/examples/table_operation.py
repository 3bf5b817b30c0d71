"""A tool that has code read tables and write another one. Nothing is returned but what was printed: the result is the file.

python table_operation.py orders.csv orders_with_total.csv
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from fumehood import AsyncClient, SandboxClient

Write = Callable[[str], str]
"""Writes the body of `operation(dataframes, output_path)` for an instruction, as a model would."""


class TableOperationTool:
    """Runs `operation(dataframes, output_path)` on files of the sandbox's session."""

    def __init__(self, sandbox: SandboxClient, write: Write) -> None:
        self.sandbox = sandbox
        self.write = write

    async def operate(self, instruction: str, input_paths: Sequence[str], output_path: str) -> dict[str, Any]:
        result = await self.sandbox.execute(
            self._code(instruction, input_paths, output_path),
            result_var=None,
            timeout=30,
            on_stdout=lambda text: print(text, end="", file=sys.stderr),
        )
        if not result.success:
            return {"success": False, "error": result.error or result.stderr}
        return {
            "success": True,
            "output": result.stdout,
            "output_path": output_path,
            "execution_time": f"{result.execution_time:.2f}s",
        }

    def _code(self, instruction: str, input_paths: Sequence[str], output_path: str) -> str:
        body = "\n".join("    " + line for line in self.write(instruction).splitlines())
        return f"""
import os
import pandas as pd

def operation(dataframes, output_path):
    df = dataframes[0]
{body}
    os.makedirs(os.path.dirname(output_path), exist_ok=True)
    df.to_csv(output_path, index=False)
    print(f"wrote {{len(df)}} rows to {{output_path}}")

operation([pd.read_csv(path) for path in {list(input_paths)!r}], {output_path!r})
"""


def add_total(_instruction: str) -> str:
    """What a model would make of it."""
    return "df['total'] = df['price'] * df['quantity']"


async def main(source: str, target: str) -> None:
    async with AsyncClient() as client, client.session() as session:
        stored = await session.files.upload(Path(source))
        url = os.environ.get("FUMEHOOD_URL", "http://localhost:8080")
        async with SandboxClient(url, session_id=session.id) as sandbox:
            tool = TableOperationTool(sandbox, add_total)
            answer = await tool.operate(
                "add a column: price times quantity", [f"/data/{stored.path}"], "/data/outputs/result.csv"
            )
        if not answer["success"]:
            raise SystemExit(answer["error"])
        await session.files.download(answer["output_path"], target)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
