"""Fixtures: `run` one script in a fresh runner, `session` a runner that keeps its variables."""

import importlib.util
import subprocess
import sys

import pytest

from host import PYTHON, Host


@pytest.fixture
def workspace(tmp_path):
    """The working directory of the runner."""
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def run(workspace):
    """run(code, stdin=b"", env=None, **request fields) -> Outcome, in mode script."""

    def run(code, stdin=b"", env=None, **fields):
        with Host(workspace, stdin, env) as host:
            return host.script(code, **fields)

    return run


@pytest.fixture
def session(workspace):
    """A Host; use session.cell(code)."""
    with Host(workspace) as host:
        yield host


_found = {}


def needs(*modules):
    """Skip with a reason unless the runner's interpreter has these modules."""
    for module in modules:
        if module not in _found:
            if PYTHON == sys.executable:
                _found[module] = importlib.util.find_spec(module) is not None
            else:
                _found[module] = subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode == 0
        if not _found[module]:
            pytest.skip(f"{module} is not installed")


@pytest.fixture
def needs_module():
    return needs
