"""Fixtures: `run` one script in a fresh runner, `session` a runner that keeps its variables, `forked` one forked from a zygote."""

import importlib.util
import os
import subprocess
import sys

import pytest

from host import PYTHON, ForkedHost, Host, Zygote


@pytest.fixture
def workspace(tmp_path):
    """The working directory of the runner."""
    path = tmp_path / "work"
    path.mkdir()
    return path


PRELOADED = ("json", "numpy", "pandas", "scipy.stats", "matplotlib.pyplot", "seaborn", "sklearn.linear_model", "multiprocessing.synchronize")


@pytest.fixture(scope="session")
def zygote(tmp_path_factory):
    """A zygote with the packages that this interpreter has."""
    folder = tmp_path_factory.mktemp("zygote")
    zygote = Zygote(folder, [m for m in PRELOADED if has(m.split(".")[0])])
    assert zygote.is_ready, zygote.errors()
    yield zygote
    zygote.close()


@pytest.fixture
def start(workspace, request):
    """start(stdin=b"", env=None) -> Host. With RUNNER_FORKED=1 one forked from a zygote, unless `env` asks for more."""

    def start(stdin=b"", env=None):
        if os.environ.get("RUNNER_FORKED") and env is None:
            return ForkedHost(request.getfixturevalue("zygote"), workspace, stdin)
        return Host(workspace, stdin, env)

    return start


@pytest.fixture
def run(start):
    """run(code, stdin=b"", env=None, **request fields) -> Outcome, in mode script."""

    def run(code, stdin=b"", env=None, **fields):
        with start(stdin, env) as host:
            return host.script(code, **fields)

    return run


@pytest.fixture
def session(start):
    """A Host; use session.cell(code)."""
    with start() as host:
        yield host


@pytest.fixture
def forked(zygote, workspace):
    """Like `run`, in a child of the zygote."""

    def forked(code, stdin=b"", **fields):
        with ForkedHost(zygote, workspace, stdin) as host:
            return host.script(code, **fields)

    return forked


_found = {}


def has(module):
    """Whether the runner's interpreter has it."""
    if module not in _found:
        if PYTHON == sys.executable:
            _found[module] = importlib.util.find_spec(module) is not None
        else:
            _found[module] = subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode == 0
    return _found[module]


def needs(*modules):
    """Skip with a reason unless the runner's interpreter has these modules."""
    for module in modules:
        if not has(module):
            pytest.skip(f"{module} is not installed")


@pytest.fixture
def needs_module():
    return needs
