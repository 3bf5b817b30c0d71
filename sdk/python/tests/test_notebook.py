"""Cells of a notebook that run in a sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from fumehood import Client


@pytest.fixture
def shell(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("FUMEHOOD_URL", url)
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "fumehood.notebook")
    yield shell
    shell.run_line_magic("fumehood", "close")
    InteractiveShell.clear_instance()


def cell(shell: InteractiveShell, text: str, line: str = "") -> Any:
    with capture_output() as seen:
        shell.run_cell_magic("fumehood", line, text)  # type: ignore[no-untyped-call]
    return seen


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_cells_share_a_session_and_show_what_they_show(shell: InteractiveShell) -> None:
    assert cell(shell, "x = 41\nprint('set')").stdout == "set\n"
    seen = cell(shell, "x + 1")
    assert seen.outputs[0].data["text/plain"] == "42"
    assert "ZeroDivisionError" in cell(shell, "1/0").stderr
    assert "time limit" in cell(shell, "import time\ntime.sleep(60)", "0.3").stderr
    shell.run_line_magic("fumehood", "reset")
    assert "NameError" in cell(shell, "x").stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_session_that_ended_is_replaced(shell: InteractiveShell, url: str) -> None:
    cell(shell, "x = 1")
    with Client(url) as client:
        client.attach(client.sessions(state="idle")[0].id).close()
    seen = cell(shell, "print('on')")
    assert seen.stdout == "on\n"
    assert "fresh one" in seen.stderr
