"""Cells that run in a sandbox: `%load_ext fumehood.notebook`, then `%%fumehood` at the top of a cell.

All such cells of a notebook share a session, so that variables stay; `%fumehood reset` has the next one begin anew. `FUMEHOOD_URL` and
`FUMEHOOD_API_KEY` say where the server is. Needs IPython: pip install 'fumehood[notebook]'.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

from .client import Client, Session
from .errors import NotFound, SessionGone
from .execution import Output
from .options import SessionRunOptions


class _Cells:
    """The session of a notebook."""

    def __init__(self) -> None:
        self._client: Optional[Client] = None
        self._session: Optional[Session] = None

    def session(self) -> Session:
        if self._session is not None:
            try:
                if self._session.refresh().state not in ("closed", "lost"):
                    return self._session
            except (NotFound, SessionGone):
                pass
            print("the session had ended; here is a fresh one, without the variables", file=sys.stderr)
        if self._client is None:
            self._client = Client()
        self._session = self._client.session()
        return self._session

    def run(self, line: str, cell: Optional[str] = None) -> None:
        """`%%fumehood [timeout in seconds]` runs the cell; `%fumehood reset` forgets the variables, `%fumehood close` ends the session."""
        if cell is None:
            self._command(line.strip())
            return
        session = self.session()
        options: SessionRunOptions = {"timeout_ms": round(float(line) * 1000)} if line.strip() else {}
        try:
            execution = session.run(
                cell,
                on_stdout=lambda text: print(text, end="", flush=True),
                on_stderr=lambda text: print(text, end="", file=sys.stderr, flush=True),
                on_display=_show,
                **options,
            )
        except KeyboardInterrupt:
            # As in any other cell.
            session.interrupt()
            raise
        # The traceback of an exception has been written already.
        if execution.error is not None and execution.error.code != "exception":
            print(execution.error, file=sys.stderr)
        if execution.interpreter_restarted:
            print("the interpreter was restarted: variables are gone, files are kept", file=sys.stderr)

    def _command(self, command: str) -> None:
        if command == "reset":
            self.session().reset()
        elif command == "close":
            if self._session is not None:
                self._session.close()
            if self._client is not None:
                self._client.close()
            self._session = self._client = None
        else:
            raise ValueError("write %%fumehood at the top of a cell, or %fumehood reset, or %fumehood close")


def _show(output: Output) -> None:
    from IPython.display import display

    display(output)  # type: ignore[no-untyped-call]


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext`."""
    shell.register_magic_function(_Cells().run, "line_cell", "fumehood")
