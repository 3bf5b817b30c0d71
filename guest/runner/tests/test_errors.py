"""Errors: Python's text, the user's line, a hint."""

import pytest
from fumehood_runner.refused import refused_by


def test_the_traceback_is_python_s_without_the_runner(run):
    code = (
        "# prices\nprices = {'tea': 3}\n\ndef total(order):\n    return sum(prices[i] for i in order)\n\n"
        "print(total(['tea']))\nprint(total(['tea', 'mate']))\n"
    )
    o = run(code)
    assert o.error["type"] == "KeyError" and o.error["message"] == "'mate'" and o.error["line"] == 5
    text = "\n".join(o.error["traceback"])
    assert text.startswith('Traceback (most recent call last):\n  File "<code>", line 8, in <module>\n    print(total(')
    assert "prices[i] for i in order" in text and "fumehood" not in text and "IPython" not in text
    assert o.stderr == text + "\n" and o.stdout == "3\n" and o.status == 1


def test_a_syntax_error_runs_nothing(run):
    o = run("print('first')\nfor it in items\n    print(it)")
    assert o.error["type"] == "SyntaxError" and o.error["line"] == 2 and o.stdout == "" and "^" in o.stderr
    o = run("print('first')\nreturn 5")
    assert o.error["type"] == "SyntaxError" and o.error["line"] == 2 and o.stdout == ""
    assert run("if True:\nx = 1").error["type"] == "IndentationError"
    assert run("a = 1\nb = = 2\n").error["line"] == 2
    assert run("x = 1\nx = '\0'").error["type"] in ("SyntaxError", "ValueError")


def test_a_syntax_error_elsewhere_has_the_user_s_line(run, workspace):
    (workspace / "broken.py").write_text("\n\n\nx = = 1")
    assert run("x = 1\nimport broken").error["line"] == 2
    assert run("x = 1\n\neval('1 +')").error["line"] == 3


def test_chains_notes_and_groups_are_shown(run):
    code = (
        "try:\n    1/0\nexcept ZeroDivisionError as e:\n    x = ValueError('second')\n    x.add_note('a note')\n    raise x from e"
    )
    o = run(code)
    assert "ZeroDivisionError" in o.stderr and "direct cause" in o.stderr and "a note" in o.stderr and o.error["line"] == 6
    o = run("raise ExceptionGroup('many', [ValueError('one'), KeyError('two')])")
    assert o.error["type"] == "ExceptionGroup" and "ValueError: one" in o.stderr


def test_endless_recursion_gives_a_short_traceback(run):
    o = run("def down(n):\n    return down(n + 1)\ndown(0)")
    assert o.error["type"] == "RecursionError" and len(o.stderr) < 3000 and "repeated" in o.stderr
    o = run("import sys\nsys.setrecursionlimit(20_000)\ndef a(n):\n    return b(n)\ndef b(n):\n    return a(n)\na(0)")
    assert o.error["type"] == "RecursionError" and len(o.stderr) < 21_000 and "omitted" in o.stderr


def test_long_runs_of_library_frames_are_shortened(run, workspace):
    (workspace / "deep.py").write_text("".join(f"def f{i}(g): return f{i + 1}(g)\n" for i in range(30)) + "def f30(g): return g()\n")
    o = run("import deep\ndef mine():\n    raise ValueError('x')\ndeep.f0(mine)")
    assert "library frames omitted" in o.stderr and "in mine" in o.stderr and o.error["line"] == 3


def test_a_huge_message_is_bounded(run):
    o = run("raise ValueError('m' * 5_000_000)")
    assert len(o.stderr) < 30_000 and len(o.error["message"]) < 11_000


HOSTILE = [
    "class E(Exception):\n    def __str__(self): raise ValueError('no')\nraise E()",
    "class E(Exception):\n    def __repr__(self): raise SystemExit\n    __str__ = __repr__\nraise E()",
    "class E(Exception):\n    @property\n    def __notes__(self): raise ValueError\nraise E()",
    "class E(Exception):\n    __traceback__ = property(lambda s: 1 / 0)\nraise E()",
    "class E(BaseException): pass\nraise E('x')",
    "raise GeneratorExit",
    "import asyncio\nraise asyncio.CancelledError",
    "e = ValueError('self')\ne.__cause__ = e\nraise e",
    "raise SyntaxError",
    "raise SyntaxError('x', ('f', 'bad', object(), None))",
]


@pytest.mark.parametrize("code", HOSTILE)
def test_no_exception_can_break_the_report(session, code):
    o = session.cell(code)
    assert o.kind == "exception" and o.exit_code == 1 and o.error["type"], o.frame
    assert session.cell("1").result == 1


def test_the_user_s_excepthook_is_called_as_in_a_script(run):
    o = run("import sys\nsys.excepthook = lambda t, v, tb: print('hook', t.__name__)\n1/0")
    assert o.stdout == "hook ZeroDivisionError\n" and o.stderr == "" and o.error["type"] == "ZeroDivisionError"


def test_errors_in_functions_of_earlier_executions_show_the_right_source(session):
    session.cell("def f(x):\n    y = 1\n    return y / x")
    o = session.cell("z = 0\nf(z)")
    assert o.error["line"] == 2 and "return y / x" in o.stderr and "f(z)" in o.stderr


def test_an_error_in_a_magic_s_code_is_an_error(session, workspace):
    (workspace / "bad.py").write_text("1/0")
    o = session.cell("%run bad.py")
    assert o.kind == "exception" and o.error["type"] == "ZeroDivisionError" and o.stderr.count("ZeroDivisionError") == 1
    assert session.cell("%%time\n1/0").error["type"] == "ZeroDivisionError"


def test_sys_exit_has_the_exit_code(run):
    for code, status in [("3", 3), ("", 0), ("0", 0), ("None", 0), ("-1", 255), ("256", 0), ("True", 1)]:
        o = run(f"import sys\nsys.exit({code})")
        assert (o.kind, o.exit_code, o.status, o.stderr) == ("exit", status, status, ""), code
    o = run("raise SystemExit('bye')")
    assert (o.exit_code, o.stderr) == (1, "bye\n")
    assert run("exit(4)").exit_code == 4
    assert run("result = 5\nimport sys\nsys.exit()", result_var="result").result == 5
    assert run("import asyncio\nawait asyncio.sleep(0)\nraise SystemExit(6)").exit_code == 6


HINTS = [
    ("import cv2_missing_zz", "not installed"),
    ("import yaml_zz.x", "no network"),
    ("import socket\nsocket.create_connection(('127.0.0.1', 9), 5)", "network"),
    ("import socket\nsocket.getaddrinfo('name.invalid', 80)", "network"),
    ("import urllib.request as u\nu.urlopen('http://name.invalid/', timeout=5)", "network"),
    ("import http.client\nhttp.client.HTTPConnection('127.0.0.1', 9).request('GET', '/')", "network"),
    ("import socket\nraise socket.timeout('timed out') from socket.gaierror(-2, 'x')", "network"),
    ("open('missing.csv')", "here.txt"),
    ("import subprocess\nsubprocess.run(['no-such-program-zz'])", "no-such-program-zz is not installed"),
    ("math.pi", "import math"),
    ("raise MemoryError", "memory limit"),
    ("raise BlockingIOError(11, 'Resource temporarily unavailable')", "process limit"),
    ("raise RuntimeError(\"can't start new thread\")", "process limit"),
    ("raise OSError(28, 'No space left on device')", "disk limit"),
    ("raise OSError(27, 'File too large')", "file size limit"),
    ("raise OSError(30, 'Read-only file system', '/usr/x')", "/tmp"),
    ("raise PermissionError(13, 'Permission denied', '/usr/x')", "working directory"),
    ("b'\\xff'.decode()", "encoding"),
    ("import cv2", "cv2 (package opencv-python) is not installed"),
    ("import cv2", "Whoever runs the server can add it to the image"),
    ("import sklearn_zz.linear_model", "sklearn_zz is not installed"),
    ("import jsn", "did you mean json?"),
    ("import json.decoders", "json is installed, but has no module json.decoders; nearest: json.decoder"),
    ("from collections import Iterable", "from collections.abc import Iterable"),
    ("from math import sqroot", "math has no sqroot; nearest: sqrt"),
    ("import math\nmath.sqroot(4)", "math has no sqroot; nearest: sqrt"),
    ("[3, 1].sort().index(1)", "None"),
    ("true", "True"),
    ("import os\nos.environ['NO_SUCH_NAME']", "`env` of the request"),
    ("open('sub/Here.TXT')", "did you mean here.txt?"),
    ("open('sub/Here.TXT')", "the folder sub does not exist"),
    ("open('sub/x.csv', 'w')", "os.makedirs"),
    ("open('/Users/me/here.txt')", "did you mean here.txt?"),
    ("open('data/sales_2023.csv')", "did you mean data/sales 2024.csv?"),
    ("open('data/other.csv')", "the folder data holds: sales 2024.csv"),
    ("open('C:\\\\data\\\\here.txt')", "another machine"),
    ("open('https://host.invalid/a.csv')", "addresses"),
    ("open('data')", "data is a folder, not a file; it holds: sales 2024.csv"),
    ("open('here.txt/x')", "is a file"),
    ("import os\nos.mkdir('data')", "exist_ok=True"),
    ("open('x', 'w', encoding='ascii').write('é')", "encoding='utf-8'"),
    ("'名称,数量'.encode('gbk').decode()", "encoding='gbk'"),
    ("'名称㐂𠀀'.encode('gb18030').decode()", "gb18030"),
    ("('名称'.encode('utf-16')).decode()", "encoding='utf-16'"),
    ("'café, Zürich'.encode('latin-1').decode()", "encoding='cp1252'"),
    ("'これはテストです'.encode('shift_jis').decode()", "encoding='shift_jis'"),
    ("'안녕하세요 세계'.encode('euc_kr').decode()", "encoding='euc_kr'"),
    ("'Привет, мир'.encode('cp1251').decode()", "encoding='cp1251'"),
    ("b'PK\\x03\\x04\\xff'.decode()", "pd.read_excel"),
    ("input()", "pass the text as stdin"),
    ("import subprocess\nsubprocess.run(['sleep', '60'], timeout=0.01)", "timeout_ms"),
    ("import asyncio\nawait asyncio.wait_for(asyncio.sleep(60), 0.01)", "timeout_ms"),
    ("import json\njson.loads('{} {}')", "lines=True"),
]


@pytest.mark.parametrize("code, words", HINTS, ids=[h[0][-40:] for h in HINTS])
def test_a_common_mistake_gets_a_hint(run, workspace, code, words):
    (workspace / "here.txt").write_text("")
    (workspace / "data").mkdir()
    (workspace / "data" / "sales 2024.csv").write_text("")
    assert words in run(code).error["hint"]


TABLE = "import pandas as pd\ndf = pd.DataFrame({'city': ['a'], 'price': [1.0], ' qty': [2], 2024: [3]})\n"
TABLE_HINTS = [
    ("df['pric']", "the table has no column 'pric'; nearest: 'price'; columns: 'city', 'price', ' qty', 2024"),
    ("df[['city', 'Price']]", "no column 'Price'; nearest: 'price'"),
    ("df['qty']", "df.columns.str.strip()"),
    ("df['2024']", "no column '2024'; nearest: 2024"),
    ("df.groupby('town').sum()", "no column 'town'; columns: 'city'"),
    ("df.sort_values('pric')", "nearest: 'price'"),
    ("df.drop(columns=['prices'])", "nearest: 'price'"),
    ("df.merge(df, on='town')", "no column 'town'"),
    ("df.set_index('town')", "no column 'town'"),
    ("df.agg({'town': 'sum'})", "no column 'town'"),
    ("df.loc[:, 'pric']", "no column 'pric'"),
    ("df.loc['x']", "no label 'x'; labels: 0"),
    ("df['city']['x']", "the series has no label 'x'"),
    ("df.query('pric > 1')", "nearest: 'price'; columns"),
    ("df.apply(lambda row: row['pric'], axis=1)", "nearest: 'price'"),
    ("df.pric.sum()", "nearest columns: 'price'"),
    ("df.append(df)", "pd.concat"),
    ("df.fillna(method='ffill')", ".ffill()"),
    ("df.to_csv('nowhere/x.csv')", "os.makedirs"),
    ("open('x.csv', 'w').close()\npd.read_csv('x.csv')", "empty"),
    ("open('x.csv', 'w').write('a;b\\n1;2\\n3,4,5\\n')\npd.read_csv('x.csv')", "sep="),
    ("open('x.csv', 'wb').write('名称,数量\\n苹果,3\\n'.encode('gbk'))\npd.read_csv('x.csv')", "encoding='gbk'"),
    ("import matplotlib.pyplot as plt\nplt.style.use('seaborn-whitegrid')", "seaborn-v0_8-whitegrid"),
    ("import polars as pl\npl.DataFrame({'price': [1]})['pric']", "no column 'pric'; nearest: 'price'"),
]


@pytest.mark.parametrize("code, words", TABLE_HINTS, ids=[h[0][-40:] for h in TABLE_HINTS])
def test_what_a_table_has_not_is_named_with_what_it_has(forked, needs_module, code, words):
    needs_module("pandas", "polars", "matplotlib")
    o = forked(TABLE + code)
    assert o.error["hint"] is not None, o.stderr
    assert words in o.error["hint"]


NO_HINTS = [
    "{}['a']",
    "df.apply(lambda row: {}['a'], axis=1)",
    "class D(pd.DataFrame):\n    @property\n    def columns(self): raise SystemExit\nraise KeyError('x')",
    "raise AttributeError",
    "raise ImportError('cannot import name', name=5)",
    "raise FileNotFoundError(2, 'x', object())",
]


@pytest.mark.parametrize("code", NO_HINTS)
def test_a_hint_is_never_about_something_else_and_never_breaks_the_report(forked, needs_module, code):
    needs_module("pandas")
    o = forked(TABLE + code)
    assert o.kind == "exception" and "table" not in (o.error["hint"] or "")


def test_hints_stay_short_whatever_lies_around(run, workspace, needs_module):
    needs_module("pandas")
    for n in range(300):
        (workspace / f"{'long' * 40}{n}").write_text("")
    assert len(run("open('missing.csv')").error["hint"]) < 1_300
    hint = run("import pandas as pd\npd.DataFrame({f'{\"c\" * 500}{n}': [n] for n in range(3000)})['x']").error["hint"]
    assert "more" in hint and len(hint) < 1_300


def test_a_file_that_hides_a_library_is_named(run, workspace):
    # One that no interpreter has loaded before.
    (workspace / "mailbox.py").write_text("x = 1")
    assert "mailbox.py in the working directory hides the library mailbox" in run("import mailbox\nmailbox.Mailbox").error["hint"]
    assert "hides the library" in run("from mailbox import Mailbox").error["hint"]


def test_a_network_error_gets_no_hint_where_there_is_a_network(run):
    assert run("import socket\nsocket.create_connection(('127.0.0.1', 9), 5)", network=True).error["hint"] is None


def test_errno_is_reported(run):
    assert run("open('missing')").error["errno"] == 2
    assert run("1/0").error["errno"] is None


def refusal_of(code, network=False):
    namespace = {}
    try:
        exec(code, namespace)
    except BaseException as e:
        return refused_by(e, network)
    raise AssertionError("nothing was raised")


def test_a_place_that_was_refused_is_named():
    assert refusal_of("raise OSError(30, 'Read-only file system', '/usr/x')") == {
        "kind": "path",
        "what": "/usr/x (Read-only file system)",
    }
    wrapped = "try:\n    raise PermissionError(13, 'Permission denied', b'/etc/x')\nexcept OSError as e:\n    raise ValueError('no') from e"
    assert refusal_of(wrapped) == {"kind": "path", "what": "/etc/x (Permission denied)"}
    # Of a call without a place the host knows more.
    assert refusal_of("raise PermissionError(1, 'Operation not permitted')") is None
    assert refusal_of("open('/nonexistent/file')") is None


def test_the_way_out_that_was_refused_is_named():
    unreachable = "import socket\nraise OSError(101, 'Network is unreachable')"
    assert refusal_of(unreachable) == {
        "kind": "network",
        "what": "connecting to the outside ([Errno 101] Network is unreachable)",
    }
    assert refusal_of(unreachable, network=True) is None
    with_address = "import urllib.request, urllib.error, socket\ne = urllib.error.URLError(socket.gaierror(-3, 'Temporary failure'))\ne.url = 'http://example.com/x'\nraise e"
    assert refusal_of(with_address) == {"kind": "network", "what": "connecting to http://example.com/x"}
    # Nobody listens on a port of the sandbox itself.
    assert refusal_of("raise ConnectionRefusedError(111, 'Connection refused')") is None


def test_no_exception_can_break_what_is_said_of_refusals():
    hostile = "class E(OSError):\n    filename = property(lambda s: 1 / 0)\nraise E(13, 'x')"
    assert refusal_of(hostile) is None
    loop = "a = ValueError()\nb = ValueError()\na.__cause__ = b\nb.__cause__ = a\nraise a"
    assert refusal_of(loop) is None
