"""The README's examples, run one after the other as a reader would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_the_examples_of_the_readme_work(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_URL", url)
    monkeypatch.chdir(tmp_path)
    Path("sales.csv").write_text("city,amount\nOslo,1\nRome,2.5\n")
    names: dict[str, object] = {"__name__": "readme"}
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"README example {number}", "exec"), names)
