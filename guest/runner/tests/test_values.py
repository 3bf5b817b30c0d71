"""The public encoding of results."""

import base64

import pytest

CASES = [
    ("True, None, 1.5, 'a'", [True, None, 1.5, "a"]),
    ("float('nan')", {"$type": "float", "value": "nan"}),
    ("[float('inf'), -float('inf')]", [{"$type": "float", "value": "inf"}, {"$type": "float", "value": "-inf"}]),
    ("2**53 - 1", 2**53 - 1),
    ("2**53", {"$type": "int", "value": "9007199254740992"}),
    ("10**400", {"$type": "int", "value": "1" + "0" * 400}),
    ("16**5000", {"$type": "int", "value": "0x1" + "0" * 5000}),
    ("1 + 2j", {"$type": "complex", "real": 1, "imag": 2}),
    ("import decimal; decimal.Decimal('1.10')", {"$type": "decimal", "value": "1.10"}),
    ("import fractions; fractions.Fraction(2, 6)", {"$type": "fraction", "value": "1/3"}),
    ("b'\\xff'", {"$type": "bytes", "base64": "/w==", "size": 1, "truncated": False}),
    ("import datetime as d; d.datetime(2020, 1, 1)", {"$type": "datetime", "value": "2020-01-01T00:00:00"}),
    ("import datetime as d; d.date(2020, 1, 1)", {"$type": "date", "value": "2020-01-01"}),
    ("import datetime as d; d.time(1, 2)", {"$type": "time", "value": "01:02:00"}),
    (
        "import datetime as d; d.timedelta(days=1, seconds=5, microseconds=500000)",
        {"$type": "timedelta", "value": "P1DT0H0M5.5S", "seconds": 86405.5},
    ),
    ("import datetime as d; d.timedelta(hours=-1)", {"$type": "timedelta", "value": "-P0DT1H0M0S", "seconds": -3600}),
    ("import uuid; uuid.UUID(int=1)", {"$type": "uuid", "value": "00000000-0000-0000-0000-000000000001"}),
    ("import pathlib; pathlib.Path('/a/b')", {"$type": "path", "value": "/a/b"}),
    ("import enum\nclass E(enum.Enum):\n    A = 1\nE.A", {"$type": "enum", "class": "__main__.E", "name": "A", "value": 1}),
    ("import enum\nclass I(enum.IntEnum):\n    A = 1\nI.A", {"$type": "enum", "class": "__main__.I", "name": "A", "value": 1}),
    ("{3, 1, 2}", {"$type": "set", "value": [1, 2, 3]}),
    ("{'a': 1, 2: 'b', 1.5: None, True: 3, None: 4}", {"a": 1, "2": "b", "1.5": None, "true": 3, "null": 4}),
    ("{1: 'a', '1': 'b'}", {"$type": "dict", "items": [[1, "a"], ["1", "b"]]}),
    ("{(1, 2): 3}", {"$type": "dict", "items": [[[1, 2], 3]]}),
    ("{'$type': 'int', 'value': 'x'}", {"$type": "dict", "items": [["$type", "int"], ["value", "x"]]}),
    ("x = []; x.append(x); x", [{"$type": "cycle"}]),
    ("x = [1]; [x, x]", [[1], [1]]),
    ("from collections import namedtuple; namedtuple('P', 'a b')(1, 2)", [1, 2]),
    ("from collections import Counter; Counter('aab')", {"a": 2, "b": 1}),
    ("class S(str): pass\nS('sub')", "sub"),
    ("class D(dict):\n    def items(self): raise ValueError\nD(a=1)", {"a": 1}),
]


@pytest.mark.parametrize("code, encoded", CASES, ids=[c[0][-40:] for c in CASES])
def test_a_value_has_one_documented_encoding(session, code, encoded):
    o = session.cell(code)
    assert o.kind == "ok", o.error
    assert o.result == encoded


NUMPY = [
    ("np.int64(3)", 3),
    ("np.float32(0.5)", 0.5),
    ("np.float64('nan')", {"$type": "float", "value": "nan"}),
    ("np.bool_(True)", True),
    ("np.str_('a')", "a"),
    ("np.longdouble(1.5)", 1.5),
    ("np.complex128(1j)", {"$type": "complex", "real": 0, "imag": 1}),
    ("np.datetime64('2020-01-02')", {"$type": "datetime", "value": "2020-01-02"}),
    ("np.timedelta64(1500, 'ms')", {"$type": "timedelta", "value": "P0DT0H0M1.5S", "seconds": 1.5}),
    ("np.timedelta64('NaT')", {"$type": "timedelta", "value": "NaT", "seconds": None}),
    ("{np.int64(1): np.float64(2)}", {"1": 2}),
    (
        "np.arange(6).reshape(2, 3)",
        {"$type": "ndarray", "dtype": "int64", "shape": [2, 3], "data": [[0, 1, 2], [3, 4, 5]], "truncated": False},
    ),
    ("np.array(5)", {"$type": "ndarray", "dtype": "int64", "shape": [], "data": 5, "truncated": False}),
    ("np.zeros((0, 3))", {"$type": "ndarray", "dtype": "float64", "shape": [0, 3], "data": [], "truncated": False}),
]


@pytest.mark.parametrize("code, encoded", NUMPY, ids=[c[0] for c in NUMPY])
def test_numpy_values_are_like_python_s(session, needs_module, code, encoded):
    needs_module("numpy")
    assert session.cell("import numpy as np\n" + code).result == encoded


def test_a_large_array_is_cut_and_says_so(session, needs_module):
    needs_module("numpy")
    r = session.cell("import numpy as np\nnp.zeros(5_000_000)").result
    assert r["shape"] == [5_000_000] and r["truncated"] is True and 100 < len(r["data"]) < 100_000
    r = session.cell("np.zeros((2, 5_000_000))").result
    assert r["shape"] == [2, 5_000_000] and r["truncated"] is True


def test_pandas_values_are_tagged(session, needs_module):
    needs_module("pandas")
    r = session.cell(
        "import pandas as pd\n[pd.NA, pd.NaT, pd.Timestamp('2024-01-01', tz='UTC'), pd.Timedelta('1h'), pd.DataFrame({'a': [1]}),"
        " pd.Series([1, 2], name='s'), pd.Index([1, 2])]"
    ).result
    assert r[0] is None and r[1] == {"$type": "datetime", "value": "NaT"}
    assert r[2] == {"$type": "datetime", "value": "2024-01-01T00:00:00+00:00"}
    assert r[3] == {"$type": "timedelta", "value": "P0DT1H0M0S", "seconds": 3600}
    assert r[4]["$type"] == "dataframe" and r[4]["shape"] == [1, 1]
    assert r[5]["$type"] == "series" and r[5]["shape"] == [2] and r[5]["name"] == "s"
    assert r[6]["$type"] == "index" and r[6]["data"] == [1, 2]


HOSTILE = [
    "class E:\n    def __repr__(self): raise ValueError('no')\nE()",
    "class E:\n    def __repr__(self): raise SystemExit(3)\nE()",
    "class E:\n    def __repr__(self): return 5\nE()",
    "class E(list):\n    def __iter__(self): raise ValueError\n    def __len__(self): raise ValueError\nE([1])",
    "class E(dict):\n    def __getattribute__(self, n): raise ValueError(n)\nE(a=1)",
    "class E:\n    def __getattr__(self, n): raise ValueError(n)\nE()",
    "class E:\n    __class__ = property(lambda s: 1 / 0)\nE()",
    "class M(type):\n    def __getattribute__(c, n): raise ValueError(n)\nclass E(metaclass=M): pass\nE()",
    "x = []\nfor _ in range(100_000): x = [x]\nx",
    "class E:\n    def __repr__(self): return 'r' * 50_000_000\nE()",
    "class E:\n    def _repr_html_(self): raise ValueError('html')\nE()",
    "object()",
]


@pytest.mark.parametrize("code", HOSTILE)
def test_no_object_can_break_the_result(session, code):
    o = session.cell(code + "\n")
    assert o.kind == "ok", o.error
    assert o.result is not None and o.displays
    assert session.cell("1").result == 1


def test_bytes_are_bounded(session):
    r = session.cell("b'z' * 10_000_000").result
    assert r["truncated"] is True and r["size"] == 10_000_000 and set(base64.b64decode(r["base64"])) == {ord("z")}
