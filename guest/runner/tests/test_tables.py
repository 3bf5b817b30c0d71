"""The `dataframe` of a result."""

import pytest


@pytest.fixture(autouse=True)
def _pandas(needs_module):
    needs_module("pandas")


def test_a_table_is_described(run):
    o = run("import pandas as pd\ndf = pd.DataFrame({'city': ['Oslo', 'Lima'], 'n': [1, 2]})\ndf", preview_rows=1)
    d = o.dataframe
    assert (d["var_name"], d["kind"], d["shape"], d["columns"]) == ("df", "pandas.DataFrame", [2, 2], ["city", "n"])
    assert d["preview"] == [{"city": "Oslo", "n": 1}] and d["dtypes"]["n"] == "int64"
    assert d["index"] == {"names": [None], "dtype": "int64", "levels": 1, "preview": [0]}
    assert d["memory_bytes"] > 0 and d["memory_usage"].split()[1] in ("bytes", "KB") and d["truncated_columns"] is False
    assert o.result["$type"] == "dataframe" and "text/html" in o.displays[0]["mime"]


def test_result_var_names_the_table(run):
    o = run("import pandas as pd\nresult = pd.DataFrame({'a': [1]}).describe()", result_var="result")
    assert o.dataframe["var_name"] == "result" and o.dataframe["shape"] == [8, 1]
    assert run("import pandas as pd\npd.DataFrame({'a': [1]})").dataframe["var_name"] == "result"


def test_odd_cells_become_json(run):
    code = (
        "import pandas as pd, numpy as np\npd.DataFrame({\n"
        "'t': pd.to_datetime(['2024-03-31 00:30', None, '2024-03-31 01:30'], utc=True).tz_convert('Europe/Berlin'),\n"
        "'v': [np.nan, np.inf, -np.inf],\n'd': pd.to_timedelta(['1h', None, '-2d']),\n"
        "'o': [{'k': [1, None]}, (1, 2), {3}],\n'i': pd.array([1, None, 3], dtype='Int64'), 's': ['x' * 5000, None, 'é']})"
    )
    p = run(code).dataframe["preview"]
    assert [r["t"] for r in p] == ["2024-03-31T01:30:00+01:00", None, "2024-03-31T03:30:00+02:00"]
    assert [r["v"] for r in p] == [None, "inf", "-inf"]
    assert [r["d"] for r in p] == ["0 days 01:00:00", None, "-2 days +00:00:00"]
    assert [r["o"] for r in p] == [{"k": [1, None]}, [1, 2], "{3}"]
    assert [r["i"] for r in p] == [1, None, 3]
    assert len(p[0]["s"]) < 1100 and p[1]["s"] is None and p[2]["s"] == "é"


def test_repeated_and_odd_column_names_all_survive(run):
    code = "import pandas as pd\nw = pd.DataFrame([[1, 2, 3, 4, 5]], columns=['v', 'v', 7, ('a', 1), 'v.1'])\nw"
    d = run(code).dataframe
    assert d["columns"] == ["v", "v", "7", "('a', 1)", "v.1"]
    assert d["preview"] == [{"v": 1, "v.2": 2, "7": 3, "('a', 1)": 4, "v.1": 5}] and len(d["dtypes"]) == 5


def test_column_and_row_levels_are_kept(run):
    d = run("import pandas as pd\npd.DataFrame({('x', 'y'): [1.5, None]})").dataframe
    assert d["columns"] == ["('x', 'y')"] and d["preview"] == [{"('x', 'y')": 1.5}, {"('x', 'y')": None}]
    d = run("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': [3, 4], 'c': [5, 6]}).set_index(['a', 'b'])").dataframe
    assert d["index"]["names"] == ["a", "b"] and d["index"]["levels"] == 2 and d["index"]["preview"] == [[1, 3], [2, 4]]


def test_a_million_rows_are_cheap(run):
    code = (
        "import numpy as np, pandas as pd\nn = 1_500_000\n"
        "big = pd.DataFrame(np.arange(n * 12, dtype='int32').reshape(n, 12), columns=[f'c{i}' for i in range(12)])\n"
        "import resource, time\nt = time.monotonic()\nbig"
    )
    o = run(code)
    assert o.dataframe["shape"] == [1_500_000, 12] and len(o.dataframe["preview"]) == 10
    assert "1500000 rows x 12 columns" in o.result_text and len(str(o.frame)) < 100_000


def test_wide_and_long_previews_are_bounded(run):
    d = run("import pandas as pd\npd.DataFrame([range(1000)] * 600)", preview_rows=100).dataframe
    assert d["shape"] == [600, 1000] and len(d["columns"]) == 200 and d["truncated_columns"] is True and len(d["preview"]) == 100
    assert len(run("import pandas as pd\npd.DataFrame({'a': range(600)})", preview_rows=500).dataframe["preview"]) == 500
    o = run("import pandas as pd\npd.DataFrame({'a': ['x' * 900] * 400})", preview_rows=400, max_result_bytes=50_000)
    assert 10 < len(o.dataframe["preview"]) < 60 and any(w["code"] == "preview_truncated" for w in o.warnings)


def test_zero_preview_rows_and_empty_tables(run):
    d = run("import pandas as pd\npd.DataFrame({'a': [1]})", preview_rows=0).dataframe
    assert d["preview"] == [] and d["shape"] == [1, 1]
    assert run("import pandas as pd\npd.DataFrame()").dataframe["shape"] == [0, 0]


def test_a_series_is_a_table_of_one_column(run):
    d = run("import pandas as pd\ns = pd.Series([1, 2], index=['x', 'y'], name='n')\ns").dataframe
    assert (d["kind"], d["shape"], d["columns"], d["preview"]) == ("pandas.Series", [2, 1], ["n"], [{"n": 1}, {"n": 2}])
    assert d["index"]["preview"] == ["x", "y"] and d["var_name"] == "s"


def test_arrays_are_tables(run):
    d = run("import numpy as np\nnp.arange(6.).reshape(3, 2)").dataframe
    assert d["columns"] == ["0", "1"] and d["preview"][1] == {"0": 2, "1": 3} and d["kind"] == "numpy.ndarray"
    assert run("import numpy as np\nnp.zeros(4)").dataframe["shape"] == [4, 1]
    assert run("import numpy as np\nnp.zeros((2, 2, 2))").dataframe is None


def test_polars_is_described(run, needs_module):
    needs_module("polars")
    d = run("import polars as pl\ndf = pl.DataFrame({'a': [1, None], 'b': [float('inf'), 1.0]})\ndf").dataframe
    assert (d["kind"], d["shape"], d["preview"]) == ("polars.DataFrame", [2, 2], [{"a": 1, "b": "inf"}, {"a": None, "b": 1}])
    d = run("import polars as pl\npl.Series('s', [1, 2])").dataframe
    assert (d["kind"], d["columns"], d["shape"]) == ("polars.Series", ["s"], [2, 1])
    d = run("import polars as pl\npl.DataFrame({'a': [1]}).lazy()").dataframe
    assert d["lazy"] is True and d["columns"] == ["a"]


def test_a_broken_table_costs_a_warning_not_the_execution(run):
    code = "import pandas as pd\nclass Bad(pd.DataFrame):\n    @property\n    def iloc(self): raise RuntimeError('bad iloc')\nBad({'a': [1]})"
    o = run(code)
    assert o.exit_code == 0 and o.dataframe["shape"] == [1, 1] and any(w["code"] == "dataframe_incomplete" for w in o.warnings)


def test_a_table_among_the_variables_has_its_shape(run):
    o = run("import pandas as pd, numpy as np\ndf = pd.DataFrame({'a': [1, 2]})\na = np.zeros((3, 4))")
    assert o.variables["df"]["shape"] == [2, 1] and o.variables["df"]["type"] == "DataFrame"
    assert o.variables["a"]["shape"] == [3, 4]
