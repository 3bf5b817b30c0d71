"""Few builtins: what calculates goes on, what does not says so."""

import pytest


def restricted(run, code, **fields):
    return run(code, restricted=True, **fields)


@pytest.mark.parametrize(
    "code, result",
    [
        ("import math\nmath.gcd(12, 18)", 6),
        ("from fractions import Fraction\nstr(Fraction(1, 3) + Fraction(1, 6))", "1/2"),
        ("import collections.abc\nissubclass(list, collections.abc.Sequence)", True),
        ("import statistics, itertools\nstatistics.mean(itertools.islice(range(10), 4))", 1.5),
        ("class A:\n    def f(self):\n        return sorted({3, 1, 2}, key=lambda x: -x)\nA().f()", [3, 2, 1]),
        ("def handler(input):\n    return sum(input)", None),
    ],
)
def test_calculations_go_on(run, code, result):
    o = restricted(run, code)
    assert o.error is None and o.result == result


@pytest.mark.parametrize("name", ["open", "exec", "eval", "compile", "input", "breakpoint", "help"])
def test_a_closed_builtin_says_so(run, name):
    o = restricted(run, f"{name}('1')")
    assert o.error["type"] == "NameError" and f"{name}() is closed" in o.error["message"]


@pytest.mark.parametrize("code", ["import os", "from subprocess import run", "__import__('sys')", "import numpy as np", "from . import x"])
def test_a_closed_module_says_so(run, code):
    o = restricted(run, code)
    assert o.error["type"] == "ImportError" and "is closed here" in o.error["message"]


def test_nothing_is_imported_unasked(run):
    o = restricted(run, "np.arange(3)")
    assert o.error["type"] == "NameError"


def test_another_execution_of_the_interpreter_has_them_all(session):
    assert session.cell("open", restricted=True).error is None
    assert session.cell("len(open('/proc/self/status').read()) > 0").result is True
