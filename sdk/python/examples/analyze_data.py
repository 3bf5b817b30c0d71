"""A tool that analyses a CSV file in a sandbox and brings back the table it made.

python analyze_data.py sales.csv
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, Callable

from fumehood import AsyncClient, ExecutionResult, SandboxClient

Write = Callable[[str, str], str]
"""Writes the code, as a model would: from the file's path and the kind of analysis."""


def describe(file_path: str, analysis_type: str) -> str:
    """Code for the kinds of analysis that need no model."""
    measures = {"descriptive": "df.describe(include='all')", "correlation": "df.corr(numeric_only=True)"}
    if analysis_type not in measures:
        raise ValueError(f"analysis_type must be one of {', '.join(measures)}, got {analysis_type!r}")
    return f"""
import pandas as pd

def analyze(df):
    print(f"loaded {{len(df)}} rows")
    return {measures[analysis_type]}

result = analyze(pd.read_csv({file_path!r}))
"""


class AnalyzeDataTool:
    """Runs `result = analyze(df)` and returns the table as a plain dict, ready for a model."""

    def __init__(self, sandbox: SandboxClient, write: Write = describe) -> None:
        self.sandbox = sandbox
        self.write = write

    async def analyze(self, file_path: str, analysis_type: str = "descriptive") -> dict[str, Any]:
        result = await self.sandbox.execute(
            self.write(file_path, analysis_type),
            result_var="result",
            timeout=30,
            preview_rows=20,
            on_stdout=lambda text: print(text, end="", file=sys.stderr),
        )
        if not result.success:
            return {"success": False, "error": result.error or result.stderr}
        return self._format_result(result)

    def _format_result(self, result: ExecutionResult) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "success": True,
            "execution_time": f"{result.execution_time:.2f}s",
            "output": result.stdout,
        }
        table = result.dataframe
        if table is not None:
            rows, columns = table.shape
            answer["dataframe"] = {
                "var_name": table.var_name,
                "shape": f"{rows} rows x {columns} columns",
                "columns": table.columns,
                "preview": table.preview,
                "markdown": self.sandbox._to_markdown_table(table.columns, table.preview),
            }
        else:
            # Code that returns its final form itself, as a dict, needs no preview.
            answer["return_value"] = result.return_value
        return answer


async def main(path: str) -> None:
    # The file has to be where the code runs: in a session.
    async with AsyncClient() as client, client.session() as session:
        stored = await session.files.upload(Path(path))
        url = os.environ.get("FUMEHOOD_URL", "http://localhost:8080")
        async with SandboxClient(url, session_id=session.id) as sandbox:
            answer = await AnalyzeDataTool(sandbox).analyze(f"/data/{stored.path}")
    print(answer["dataframe"]["markdown"] if answer["success"] else answer["error"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
