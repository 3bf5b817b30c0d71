"""A tool that gives a model a Python interpreter, with a person's approval where one is wanted.

python run_code_tool.py 'print(6 * 7)'
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Callable, ClassVar, Optional

from fumehood import AsyncClient, AsyncExecution, AsyncSession, NotFound, SessionGone

Approve = Callable[[str], Awaitable[bool]]
"""Asks a person whether this code may run."""


@dataclass
class ToolResult:
    """What the model gets: `status` is `success`, `error` or `rejected`."""

    status: str
    summary: str
    data: dict[str, Any] = field(default_factory=dict)


class RunCodeTool:
    """Runs Python in one session, so that variables and files stay from call to call.

    What code may do is decided by the sandbox, not by how it looks; `approve` is for runs that somebody wants to see first.
    """

    name = "run_code"
    risk_level = "medium"
    description = (
        "Runs Python code in a sandbox. Variables and files stay. Returns what was printed, shown and returned."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python source text"}},
        "required": ["code"],
    }

    def __init__(self, client: AsyncClient, approve: Optional[Approve] = None, *, timeout_ms: int = 30_000) -> None:
        self._client = client
        self._approve = approve
        self._timeout_ms = timeout_ms
        self._session: Optional[AsyncSession] = None

    async def execute(self, code: str) -> ToolResult:
        if self._approve is not None and not await self._approve(code):
            return ToolResult("rejected", "the user did not allow this code to run")
        try:
            execution = await self._run(code)
        except (SessionGone, NotFound):
            # Nobody asked for a while; the model finds its variables missing and makes them anew.
            self._session = None
            execution = await self._run(code)
        data = {
            "stdout": execution.stdout,
            "stderr": execution.stderr,
            "result": execution.result,
            "figures": [output.mime["image/png"] for output in execution.figures if "image/png" in output.mime],
        }
        return ToolResult("success" if execution.ok else "error", execution.text or "done, nothing was printed", data)

    async def _run(self, code: str) -> AsyncExecution:
        if self._session is None:
            self._session = await self._client.session()
        return await self._session.run(
            code,
            timeout_ms=self._timeout_ms,
            # A model reads a few thousand characters, and tables best as Markdown.
            output={"max_chars": 4000},
            format="markdown",
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def main(code: str) -> None:
    async with AsyncClient() as client:
        tool = RunCodeTool(client)
        try:
            print((await tool.execute(code)).summary)
        finally:
            await tool.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
