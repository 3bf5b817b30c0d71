"""Runs code that a model wrote, and has the model correct what fails, a bounded number of times.

python code_executor.py
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from fumehood import ExecutionResult, SandboxClient

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Attempt:
    """Code that failed, and how."""

    code: str
    error: str


Correct = Callable[[str, Sequence[Attempt]], Union[str, Awaitable[str]]]
"""Writes better code: from what was asked and all attempts so far, the last one last."""


class GaveUp(Exception):
    """Nothing worked; `attempts` has all that was tried."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        super().__init__(f"{len(attempts)} attempts failed, the last with: {attempts[-1].error}")
        self.attempts = list(attempts)


class CodeExecutor:
    """Runs code in a sandbox; without `correct` one failure is final."""

    def __init__(
        self,
        sandbox: SandboxClient,
        correct: Optional[Correct] = None,
        *,
        max_retries: int = 3,
        logger: Optional[logging.Logger] = None,
    ) -> None:
        self.sandbox = sandbox
        self.correct = correct
        self.max_retries = max_retries
        self.logger = logger or logging.getLogger("code_executor")

    async def execute_analysis(self, question: str, code: str) -> pd.DataFrame:
        """The table that the code leaves in `result` (its first 500 rows), or the rows of a dict with `data`.

        Raises:
            GaveUp: nothing worked.
        """
        import pandas as pd

        result = await self._until_it_works(question, code, result_var="result", preview_rows=500)
        if result.dataframe is not None:
            return pd.DataFrame(result.dataframe.preview, columns=result.dataframe.columns)
        value: Any = result.return_value
        rows = value.get("data") if isinstance(value, dict) else value
        return pd.DataFrame(rows if isinstance(rows, list) else [])

    async def execute_operation(self, instruction: str, code: str, output_path: str) -> bool:
        """Whether the code, corrected if need be, did its work; what it made is in `output_path`."""
        try:
            await self._until_it_works(instruction, code, result_var=None)
        except GaveUp as error:
            self.logger.error("%s was not written: %s", output_path, error)
            return False
        return True

    async def _until_it_works(
        self, task: str, code: str, *, result_var: Optional[str], preview_rows: int = 10
    ) -> ExecutionResult:
        attempts: list[Attempt] = []
        while True:
            result = await self.sandbox.execute(
                code,
                result_var=result_var,
                timeout=30,
                preview_rows=preview_rows,
                on_stdout=lambda text: self.logger.info("%s", text.rstrip("\n")),
            )
            if result.success:
                return result
            # The traceback tells a model more than the last line of it.
            attempts.append(Attempt(code, result.stderr or result.error or "unknown"))
            self.logger.warning("attempt %d failed: %s", len(attempts), result.error)
            if self.correct is None or len(attempts) > self.max_retries:
                raise GaveUp(attempts)
            corrected = self.correct(task, attempts)
            code = await corrected if inspect.isawaitable(corrected) else str(corrected)


def repair(_task: str, attempts: Sequence[Attempt]) -> str:
    """What a model would do, for the one mistake below."""
    return attempts[-1].code.replace("pricee", "price")


async def main() -> None:
    code = "import pandas as pd\nresult = pd.DataFrame({'price': [1, 2]})\nresult['double'] = result['pricee'] * 2"
    async with SandboxClient(os.environ.get("FUMEHOOD_URL", "http://localhost:8080")) as sandbox:
        table = await CodeExecutor(sandbox, repair).execute_analysis("double the prices", code)
    print(table)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
