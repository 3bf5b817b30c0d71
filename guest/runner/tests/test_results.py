"""The value of a program, and the shape of its namespace."""

import pytest


@pytest.mark.parametrize(
    "code, result",
    [
        ("6 * 7", 42),
        ("x = 1", None),
        ("x = 10\nx\n# a remark after the value\n", 10),
        ("x = 10\nif x:\n    x\n", None),
        ("x = 10\nx;", None),
        ("x = 10\nx ; # quiet", None),
        ("x = 10\n'a;b'", "a;b"),
        ("x = 10\nx # not quiet;", 10),
        ("'é'; 'ü';", None),
        ("print('p'); 5 * 2", 10),
        ("None", None),
        ('"two\\nlines"', "two\nlines"),
        ("(\n 1 +\n 2\n)", 3),
        ("(1); ", None),
        ("\n\n\n3", 3),
        ("x = 3\r\nx\r\n", 3),
        ("", None),
        ("# only a remark", None),
        ("[i for i in range(3)]", [0, 1, 2]),
        ("(y := 5)", 5),
        ("'x\\x0cy'\n4;", None),
    ],
)
def test_the_last_expression_is_the_value(session, code, result):
    o = session.cell(code)
    assert o.error is None and o.result == result
    assert len(o.displays) == (result is not None)


def test_the_value_is_displayed_not_printed(run):
    o = run("{'a': [1, 2], 'b': 'x'}")
    assert o.stdout == "" and o.result_text == "{'a': [1, 2], 'b': 'x'}"
    assert o.displays[0]["metadata"]["kind"] == "result"


def test_globals_and_locals_are_one_namespace(run):
    code = (
        "import re\nLIMIT = 3\ndef pieces(text):\n    return re.split(r'[;,]', text)[:LIMIT]\n"
        "def fact(n):\n    return 1 if n < 2 else n * fact(n - 1)\nclass Box:\n    size = LIMIT\n"
        "    def items(self):\n        return [LIMIT * k for k in range(self.size)]\n"
        "[pieces('a;b,c,d'), {k: [fact(k) for _ in range(1)] for k in range(4)}, Box().items()]"
    )
    assert run(code).result_text == "[['a', 'b', 'c'], {0: [1], 1: [1], 2: [2], 3: [6]}, [0, 3, 6]]"


def test_the_namespace_looks_like_a_script_s(run):
    o = run("sorted(n for n in globals() if not n.startswith('_')), __name__")
    assert o.result == [[], "__main__"]
    assert not {"In", "Out", "exit", "quit"} & set(run("dir()").result)
    assert run("'fumehood' in ''.join(map(str, globals().items()))").result is False


def test_main_module_is_the_user_s(run):
    code = (
        "import sys, pickle, inspect, os\nclass Point:\n    def __init__(self): self.x = 1\ndef f(): return 7\n"
        "import __main__\n[pickle.loads(pickle.dumps(Point())).x, pickle.loads(pickle.dumps(f))(), __main__.f is f,\n"
        " 'return 7' in inspect.getsource(f), 'self.x' in inspect.getsource(Point), sys.argv,\n"
        " sys.path[0] == os.getcwd(), os.path.dirname(os.path.abspath(__file__)) == os.getcwd()]"
    )
    assert run(code).result == [1, 7, True, True, True, ["<code>"], True, True]


def test_modules_in_the_working_directory_can_be_imported(run, workspace):
    (workspace / "mine.py").write_text("value = 11")
    assert run("import mine\nmine.value").result == 11


def test_top_level_await_works(run):
    code = "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x\nt = asyncio.create_task(f(4))\nawait t + await f(1)"
    assert run(code).result == 5


def test_asyncio_run_works(run):
    assert run("import asyncio\nasync def f(): return 3\nasyncio.run(f())").result == 3


def test_the_event_loop_lives_across_executions(session):
    session.cell("import asyncio\nq = asyncio.Queue()\nasync def put():\n    await q.put(8)\nt = asyncio.create_task(put())\nawait asyncio.sleep(0)")
    assert session.cell("await q.get()").result == 8


def test_asyncio_run_beside_top_level_await_gets_a_hint(run):
    o = run("import asyncio\nasync def f(): return 3\nawait f()\nasyncio.run(f())")
    assert "await main()" in o.error["hint"]


def test_future_statements_last_for_the_session(session):
    session.cell("from __future__ import annotations")
    assert session.cell("def f(x: no_such_name): pass\nf.__annotations__").result == {"x": "no_such_name"}


def test_magics_work(session, workspace):
    assert session.cell("%%writefile note.txt\nhi").error is None
    assert (workspace / "note.txt").read_text() == "hi\n"
    assert session.cell("%time 1 + 1").result == 2
    assert session.cell("y = !echo a b\ny").result == ["a b"]
    assert session.cell("%%bash\necho from bash").stdout == "from bash\n"
    assert session.cell("%%capture c\nprint('hidden')").stdout == ""
    assert session.cell("c.stdout").result == "hidden\n"
    assert session.cell("%cd -q /\nimport os; os.getcwd()").result == "/"
    assert session.cell("%matplotlib inline").error is None
    assert session.cell("get_ipython() is not None").result is True
    assert session.cell("\n\n%env X=1\n1/0").error["line"] == 4


def test_result_var_names_the_result(run):
    o = run("import math\nresult = {'markdown': '|a|', 'data': [{'a': 1}]}\n99", result_var="result")
    assert o.result == {"markdown": "|a|", "data": [{"a": 1}]}


def test_an_undefined_result_var_is_a_warning(run):
    o = run("1", result_var="nothing")
    assert o.result is None and o.exit_code == 0 and o.warnings[0]["code"] == "result_var_undefined"


def test_function_mode_calls_the_handler(run):
    assert run("def handler(input):\n    return {'sum': sum(input['xs'])}", has_input=True, input={"xs": [1, 2]}).result == {"sum": 3}
    assert run("async def handler(input):\n    return input", has_input=True, input=[None]).result == [None]
    assert run("def handler(input):\n    return input", has_input=True, input=None).result is None


def test_an_error_in_the_handler_has_the_user_s_line(run):
    o = run("def handler(input):\n    x = 1\n    return input['no']", has_input=True, input={})
    assert o.error["type"] == "KeyError" and o.error["line"] == 3 and "fumehood" not in o.stderr


def test_input_without_a_handler_is_a_warning(run):
    o = run("5", has_input=True, input=1)
    assert o.result == 5 and o.warnings[0]["code"] == "input_unused"


def test_variables_list_the_user_s_data_only(run):
    o = run("import os\nfrom math import pi\nx = 'v' * 500\n_y = 2\ndef f(): pass\nclass C: pass\nc = C()\nz = [1]")
    assert set(o.variables) == {"pi", "x", "c", "z"}
    assert o.variables["z"] == {"type": "list", "shape": None, "repr": "[1]"}
    assert len(o.variables["x"]["repr"]) <= 260 and o.variables["c"]["type"] == "C"


def test_variables_are_limited_in_number(run):
    assert len(run("for i in range(300): globals()[f'v{i}'] = i", max_variables=20).variables) == 20


def test_env_and_cwd_belong_to_one_execution(session, workspace):
    (workspace / "sub").mkdir()
    assert session.cell("import os\n[os.environ['K'], os.getcwd()]", env={"K": "v"}, cwd=str(workspace / "sub")).result == [
        "v",
        str(workspace / "sub"),
    ]
    assert session.cell("'K' in os.environ").result is False


def test_a_well_known_alias_is_imported_when_forgotten(run, needs_module):
    needs_module("pandas")
    o = run("df = pd.DataFrame({'a': [1]})\nlen(df)")
    assert o.result == 1 and o.warnings[0]["code"] == "auto_import" and ("warning", o.warnings[0]) in o.log
    o = run("def f():\n    return np.zeros(2).sum()\nf()")
    assert o.result == 0


@pytest.mark.parametrize(
    "code", ["def f(pd): return pd\nf(3)", "pd = 3\npd", "[pd for pd in (3,)][0]", "x = 'pd'\n3", "def f():\n    pd = 3\n    return pd\nf()", "global pd\npd = 3\npd"]
)
def test_an_alias_that_is_bound_is_left_alone(run, code):
    o = run(code)
    assert o.result == 3 and o.warnings == []


def test_gigantic_values_are_cheap(session):
    o = session.cell("x = list(range(10_000_000))\nx")
    assert o.kind == "ok" and len(o.result_text) < 70_000 and o.warnings[0]["code"] == "result_truncated"
    assert o.result[:3] == [0, 1, 2] and o.result[-1]["$type"] == "truncated"
    o = session.cell("s = 'y' * 50_000_000\ns")
    assert o.result["$type"] == "truncated" and o.result["size"] == 50_000_000
    o = session.cell("from dataclasses import dataclass\n@dataclass\nclass D:\n    xs: list\nd = D(x)\nd")
    assert o.kind == "ok" and len(o.result_text) < 1000


def test_a_result_that_is_too_large_for_its_limit_is_cut(run):
    o = run("['abc' * 100] * 1000", max_result_bytes=10_000)
    assert 10 < len(o.result) < 100 and o.result[-1]["$type"] == "truncated"


def test_a_display_that_is_too_large_loses_its_largest_form(run):
    o = run("from IPython.display import HTML, display\ndisplay(HTML('x' * 100_000))", max_display_bytes=50_000)
    assert "text/html" not in o.displays[0]["mime"] and o.warnings[0]["code"] == "display_truncated"
