"""Tables as Markdown: `markdown: true` in a request, and the form that a reader gets."""

import importlib
import os
import random
import re
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
markdown = importlib.import_module("fumehood_runner.markdown")

PD = "import pandas as pd\nimport numpy as np\n"


def split(line):
    """Cells of a line as GitHub's parser finds them: at pipes that no backslash precedes."""
    assert line.startswith("| ") and line.endswith(" |"), line
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line[1:-1])]


def grid(text):
    """(header, rows) of the table in Markdown text; every line has as many cells."""
    lines = [line for line in text.split("\n\n")[0].split("\n")]
    cells = [split(line) for line in lines]
    assert len({len(row) for row in cells}) == 1, text
    assert all(re.fullmatch("---:?", rule) for rule in cells[1]), text
    return cells[0], cells[2:]


def read(cell):
    """The text that a reader of Markdown sees in a cell; fails on what it would take for anything but text."""
    out, n = [], 0
    while n < len(cell):
        if cell[n] == "\\" and n + 1 < len(cell) and cell[n + 1] in "\\`*_[]~$|":
            out.append(cell[n + 1])
            n += 2
        elif cell.startswith("<br>", n):
            out.append("\n")
            n += 4
        elif found := re.match(r"&(lt|amp);", cell[n:]):
            out.append("<" if found[1] == "lt" else "&")
            n += len(found[0])
        else:
            assert cell[n] not in "`*[]<|~$" and not re.match(r"&#?[0-9A-Za-z]+;", cell[n:]), cell
            if cell[n] == "_":
                assert n and cell[n - 1].isalnum() and n + 1 < len(cell) and cell[n + 1].isalnum(), cell
            out.append(cell[n])
            n += 1
    return "".join(out)


PIECES = list("|\\`*_[]()<>!&;#~$ \n\t\r-:ab1é名") + ["\\|", "||", "<br>", "&lt;", "&#124;", "![x](http://e/?", "<script>", "__", "a_b", "\r\n", "\u2028", "\\\\"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_cell_holds_is_read_back_as_text_in_its_own_cell(seed):
    chance = random.Random(seed)
    for _ in range(200):
        values = ["".join(chance.choices(PIECES, k=chance.randrange(12))) for _ in range(3)]
        header, rows = grid(markdown.table([1, 3], values, [values]))
        seen = [re.sub("\r\n|[\r\u2028]", "\n", value).replace("\t", " ").strip() for value in values]
        for cells in (header, *rows):
            assert [read(cell) for cell in cells] == seen, values


def test_a_table_has_its_markdown_beside_the_preview_and_in_its_display(run, needs_module):
    needs_module("pandas")
    code = PD + "df = pd.DataFrame({'city': ['Oslo', 'a|b'], 'n': [1, 2.5]})\ndisplay(df.head(1))\ndf"
    o = run(code, markdown=True)
    expected = "|  | city | n |\n| ---: | --- | ---: |\n| 0 | Oslo | 1.0 |\n| 1 | a\\|b | 2.5 |"
    assert o.dataframe["markdown"] == expected and len(o.dataframe["preview"]) == 2
    assert [d["mime"]["text/markdown"].count("\n") for d in o.displays] == [2, 3]
    assert o.displays[1]["mime"]["text/markdown"] == expected and {"text/html", "text/plain"} < set(o.displays[1]["mime"])


def test_without_being_asked_for_nothing_is_markdown(session, needs_module):
    needs_module("pandas")
    session.cell(PD + "df = pd.DataFrame({'a': [1]})\ndf", markdown=True)
    o = session.cell("df")
    assert "markdown" not in o.dataframe and "text/markdown" not in o.displays[0]["mime"]
    o = session.cell("[1, 2]", markdown=True)
    assert o.dataframe is None and list(o.displays[0]["mime"]) == ["text/plain"]


def test_what_is_left_out_is_said_in_a_line_below(run, needs_module):
    needs_module("pandas")
    code = PD + "df = pd.DataFrame(np.zeros((100, 80), dtype=int))\ndf"
    table, note = run(code, markdown=True, preview_rows=3).dataframe["markdown"].split("\n\n")
    header, rows = grid(table)
    assert len(rows) == 3 and len(header) == 1 + markdown.MAX_COLUMNS
    assert note == "Not shown: 97 more rows and 30 more columns. The whole table: 100 rows, 80 columns."
    text = run(PD + "pd.DataFrame({'a': [1, 2]})", markdown=True, preview_rows=1).dataframe["markdown"]
    assert text.endswith("\n\nNot shown: 1 more row. The whole table: 2 rows, 1 column.")
    text = run(PD + "pd.DataFrame({'a': [1, 2]})", markdown=True, preview_rows=0).dataframe["markdown"]
    assert text == "|  | a |\n| --- | --- |\n\nNot shown: 2 rows. The whole table: 2 rows, 1 column."
    assert run(PD + "pd.DataFrame()", markdown=True).dataframe["markdown"] == "An empty table: 0 rows, 0 columns."
    text = run(PD + "pd.DataFrame({'a': []})", markdown=True).dataframe["markdown"]
    assert text == "|  | a |\n| --- | --- |\n\nAn empty table: 0 rows, 1 column."


def test_levels_of_rows_and_columns_are_readable(run, needs_module):
    needs_module("pandas")
    code = PD + "df = pd.DataFrame({'k': ['a', 'a', 'b'], 'g': [1, 2, 1], 'v': [1.0, 2.0, 4.0]})\n"
    header, rows = grid(run(code + "df.groupby(['k', 'g']).agg({'v': ['mean', 'sum']})", markdown=True).dataframe["markdown"])
    assert header == ["k", "g", "v / mean", "v / sum"]
    assert rows == [["a", "1", "1.0", "1.0"], ["a", "2", "2.0", "2.0"], ["b", "1", "4.0", "4.0"]]
    header, rows = grid(run(code + "df.pivot(index='k', columns='g', values='v')", markdown=True).dataframe["markdown"])
    assert header == ["k", "1", "2"] and rows[1] == ["b", "4.0", "NaN"]
    header, _ = grid(run(PD + "pd.DataFrame([[1, 2]], columns=pd.Index(['x', 'y'], name='axis'))", markdown=True).dataframe["markdown"])
    assert header == ["axis", "x", "y"]


def test_series_arrays_and_styled_tables_come_as_markdown_too(session, needs_module):
    needs_module("pandas", "jinja2")
    session.cell(PD)
    assert grid(session.cell("pd.Series([1, 2], index=['x', 'y'], name='n')", markdown=True).dataframe["markdown"]) == (
        ["", "n"], [["x", "1"], ["y", "2"]]
    )  # fmt: skip
    assert grid(session.cell("np.arange(4).reshape(2, 2)", markdown=True).dataframe["markdown"]) == (["0", "1"], [["0", "1"], ["2", "3"]])
    o = session.cell(
        "df = pd.DataFrame({'share': [0.25, 0.5], 'secret': [1, 2]}, index=['a', 'b'])\n"
        "df.style.format({'share': '{:.1%}'}).hide(axis='columns', subset=['secret'])",
        markdown=True,
    )
    assert grid(o.dataframe["markdown"]) == (["", "share"], [["a", "25.0%"], ["b", "50.0%"]])
    assert o.dataframe["kind"] == "pandas.Styler" and o.displays[0]["mime"]["text/markdown"] == o.dataframe["markdown"]
    assert grid(session.cell("df.style.hide(axis='index')", markdown=True).dataframe["markdown"])[0] == ["share", "secret"]


def test_polars_tables_come_as_markdown(session, needs_module):
    needs_module("polars")
    o = session.cell("import polars as pl\ndf = pl.DataFrame({'a': [1, None], 'b': ['x', 'y|z']})\ndf", markdown=True)
    assert o.dataframe["markdown"] == "| a | b |\n| ---: | --- |\n| 1 | x |\n| null | y\\|z |"
    assert o.displays[0]["mime"]["text/markdown"] == o.dataframe["markdown"]
    o = session.cell("df.lazy()", markdown=True)
    assert ".collect()" in o.dataframe["markdown"] and "| a | Int64 |" in o.dataframe["markdown"]


def test_long_cells_are_cut_with_a_mark_and_numbers_keep_what_tells_them_apart(run, needs_module):
    needs_module("pandas")
    code = PD + (
        "pd.DataFrame({'s': ['x' * 5000], 'f': [1 / 3], 'big': [123456789012345.0], 'i': [2**53 + 1], 'inf': [np.inf], 't': [True],\n"
        " 'l': [[1, 'a|b']], 'd': [pd.Timestamp('2024-01-02')], 'none': [None]})"
    )
    header, rows = grid(run(code, markdown=True).dataframe["markdown"])
    row = dict(zip(header, rows[0]))
    assert len(row["s"]) < 350 and row["s"].endswith("... \\[4700 more characters\\]")
    assert (row["f"], row["big"], row["i"], row["inf"], row["t"]) == ("0.3333333333", "123456789012345.0", "9007199254740993", "inf", "True")
    assert (row["l"], row["d"], row["none"]) == ("\\[1, 'a\\|b'\\]", "2024-01-02T00:00:00", "NaN")


def test_a_million_rows_and_thousands_of_columns_cost_no_more_than_a_few(session, needs_module):
    needs_module("pandas")
    session.cell(PD + "import time\nbig = pd.DataFrame(np.arange(6_000_000).reshape(1_500_000, 4))\nwide = pd.DataFrame(np.zeros((3, 20_000)))")
    o = session.cell("big", markdown=True, preview_rows=500)
    _, rows = grid(o.dataframe["markdown"])
    assert len(rows) == 500 and "1499500 more rows" in o.dataframe["markdown"]
    o = session.cell("wide", markdown=True, preview_rows=500)
    assert "19950 more columns" in o.dataframe["markdown"] and len(o.dataframe["markdown"]) < 3_000


def test_large_cells_in_many_rows_end_the_table_and_are_counted(run, needs_module):
    needs_module("pandas")
    o = run(PD + "pd.DataFrame({c: ['x' * 290] * 500 for c in 'abcde'})", markdown=True, preview_rows=500)
    _, rows = grid(o.dataframe["markdown"])
    assert 100 < len(rows) < 200 and f"Not shown: {500 - len(rows)} more rows" in o.dataframe["markdown"]
    o = run(PD + "pd.DataFrame({'a': ['x' * 200] * 100})", markdown=True, preview_rows=100, max_result_bytes=5_000)
    assert len(o.dataframe["markdown"]) < 5_200


def test_a_table_that_cannot_be_read_costs_its_markdown_not_the_execution(run, needs_module):
    needs_module("pandas")
    bad = PD + "class Bad(pd.DataFrame):\n    @property\n    def iloc(self): raise SystemExit\n"
    o = run(bad + "Bad({'a': [1]})", markdown=True)
    assert o.exit_code == 0 and o.dataframe["markdown"] is None and "text/markdown" not in o.displays[0]["mime"]
    code = "class S(str):\n    def __str__(self): raise ValueError\n    def __len__(self): raise ValueError\n"
    o = run(PD + code + "pd.DataFrame({'a': pd.Series([S('x'), 1], dtype=object)})", markdown=True)
    assert o.exit_code == 0 and o.dataframe["markdown"]


def test_a_form_of_the_user_s_own_is_left_alone(run):
    o = run("from IPython.display import Markdown\nclass M:\n    def _repr_markdown_(self): return '**mine**'\ndisplay(M())\nMarkdown('# t')", markdown=True)
    assert [d["mime"]["text/markdown"] for d in o.displays] == ["**mine**", "# t"]
