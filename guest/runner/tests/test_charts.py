"""`metadata.chart`: the data behind matplotlib's figures."""

import pytest

PLT = "import matplotlib.pyplot as plt\nimport numpy as np\n"
PD = PLT + "import pandas as pd\n"
SNS = PD + "import seaborn as sns\ndf = pd.DataFrame({'k': list('aabbcc'), 'h': list('xyxyxy'), 'v': [1.0, 2, 3, 4, 5, 6]})\n"


@pytest.fixture(autouse=True)
def _matplotlib(needs_module):
    needs_module("matplotlib", "pandas", "seaborn")


@pytest.fixture(scope="module")
def chart(zygote, tmp_path_factory):
    """chart(code) -> the chart of the one figure that the code leaves."""
    from host import ForkedHost

    def chart(code):
        with ForkedHost(zygote, tmp_path_factory.mktemp("work")) as host:
            o = host.script(code)
        assert o.error is None and len(o.images) == 1, o.stderr
        return next(d["metadata"]["chart"] for d in o.displays if "image/png" in d["mime"])

    return chart


@pytest.fixture(scope="module")
def axes(chart):
    """axes(code) -> the only axes of the chart."""

    def axes(code):
        (only,) = chart(code)["axes"]
        return only

    return axes


def points(axes):
    return {series["label"]: series["points"] for series in axes["series"]}


def test_a_line_chart_is_described_with_its_words_and_numbers(chart):
    code = "plt.suptitle('All')\nplt.plot([1, 2, 3], [1, 4, 9], label='squares')\nplt.plot([1, 2, 3], [1, 8, 27])\nplt.title('Powers')\n"
    found = chart(PLT + code + "plt.xlabel('n'); plt.ylabel('value'); plt.yscale('log'); plt.axhline(5)")
    (axes,) = found["axes"]
    assert (found["title"], found["truncated"], axes["kind"], axes["title"]) == ("All", False, "line", "Powers")
    assert (axes["x_label"], axes["y_label"], axes["x_scale"], axes["y_scale"]) == ("n", "value", "linear", "log")
    assert points(axes) == {"squares": [[1, 1], [2, 4], [3, 9]], None: [[1, 1], [2, 8], [3, 27]]}
    assert "x_tick_labels" not in axes and axes["series_count"] == 2 and not axes["series"][0]["truncated"]


def test_every_figure_has_its_chart_however_it_is_shown(run):
    for last in ("plt.show()", "fig", "display(fig)", "", "fig.show()"):
        o = run(PLT + "fig, ax = plt.subplots()\nax.plot([1, 2])\n" + last)
        (shown,) = [d for d in o.displays if "image/png" in d["mime"]]
        assert shown["metadata"]["chart"]["axes"][0]["kind"] == "line", last
    assert "chart" not in run("from PIL import Image\nImage.new('RGB', (4, 4))").displays[0]["metadata"]


def test_bars_have_their_categories_and_groups(axes):
    assert points(axes(PLT + "plt.bar(['tea', 'mate'], [3, 1])")) == {None: [["tea", 3], ["mate", 1]]}
    grouped = axes(
        PLT + "x = np.arange(3)\nplt.bar(x - .2, [1, 2, 3], .4, label='m')\nplt.bar(x + .2, [3, 2, 1], .4, label='w')\n"
        "plt.xticks(x, ['p', 'q', 'r'])"
    )
    assert grouped["kind"] == "bar" and grouped["x_tick_labels"] == ["p", "q", "r"]
    assert points(grouped) == {"m": [["p", 1], ["q", 2], ["r", 3]], "w": [["p", 3], ["q", 2], ["r", 1]]}
    flat = axes(PD + "pd.DataFrame({'a': [1, 2], 'b': [3, 4]}, index=['u', 'v']).plot(kind='barh', stacked=True)")
    assert flat["kind"] == "barh" and points(flat) == {"a": [["u", 1], ["v", 2]], "b": [["u", 3], ["v", 4]]}
    assert [s.get("base") for s in flat["series"]] == [None, [1, 2]]
    assert points(axes(PLT + "plt.bar([10, 20, 30], [1, -2, 3])"))[None] == [[10, 1], [20, -2], [30, 3]]


def test_a_histogram_has_its_bins(axes):
    found = axes(PLT + "plt.hist([1, 2, 2, 3, 4], bins=3, label='n')")
    assert found["kind"] == "hist" and points(found) == {"n": [[1, 2, 1], [2, 3, 2], [3, 4, 2]]}
    assert axes(SNS + "sns.histplot(df, x='v', bins=2)")["series"][0]["points"] == [[1, 3.5, 3], [3.5, 6, 3]]
    assert axes(PD + "pd.Series([1, 2, 4]).plot.hist(bins=2)")["kind"] == "hist"
    assert axes(PLT + "plt.stairs([1, 2], [0, 1, 2])")["series"][0]["points"] == [[0, 1, 1], [1, 2, 2]]


def test_points_are_told_apart_by_the_legend(axes):
    found = axes(PLT + "plt.scatter([1, 2], [3, 4], label='s')")
    assert found["kind"] == "scatter" and points(found) == {"s": [[1, 3], [2, 4]]}
    assert points(axes(SNS + "sns.scatterplot(df, x='v', y='v', hue='h')")) == {
        "x": [[1, 1], [3, 3], [5, 5]], "y": [[2, 2], [4, 4], [6, 6]]
    }  # fmt: skip
    assert axes(PLT + "plt.plot([1, 2], [1, 2], 'o')")["kind"] == "scatter"
    assert points(axes(SNS + "sns.stripplot(df[df.k == 'a'], x='k', y='v')"))[None] == [["a", 1], ["a", 2]]


def test_seaborn_s_bars_and_lines_have_their_hue_and_not_their_error_bars(axes):
    code = "df = pd.concat([df, df])\n"
    found = axes(SNS + code + "sns.barplot(df, x='k', y='v', hue='h')")
    assert points(found) == {"x": [["a", 1], ["b", 3], ["c", 5]], "y": [["a", 2], ["b", 4], ["c", 6]]}
    found = axes(SNS + code + "sns.lineplot(df, x='v', y='v', hue='h')")
    assert found["kind"] == "line" and set(points(found)) == {"x", "y"}
    assert points(axes(PLT + "plt.errorbar([1, 2], [3, 4], yerr=1, capsize=3, label='e')")) == {"e": [[1, 3], [2, 4]]}


def test_a_pie_has_its_shares(axes):
    found = axes(PLT + "plt.pie([1, 3], labels=['a', 'b'], autopct='%d')")
    assert found["kind"] == "pie" and found["series"][0]["points"] == [["a", pytest.approx(0.25)], ["b", pytest.approx(0.75)]]
    found = axes(PLT + "w = plt.pie([1, 1])[0]\nplt.legend(w, ['left', 'right'])")
    assert [label for label, _ in found["series"][0]["points"]] == ["left", "right"]


@pytest.mark.parametrize("options", ["", "patch_artist=True", "orientation='horizontal'"])
def test_boxes_have_their_quartiles_and_outliers(axes, options):
    code = f"plt.boxplot([[1, 2, 3, 4, 20], [2, 3, 4, 5, 6]], tick_labels=['p', 'q'], {options})"
    found = axes(PLT + code)
    (series,) = found["series"]
    assert found["kind"] == "box" and series["points"] == [["p", 1, 2, 3, 4, 4], ["q", 2, 3, 4, 5, 6]]
    assert series["outliers"] == [["p", 20]] and series["orientation"] == ("horizontal" if "hor" in options else "vertical")


def test_boxes_of_pandas_and_seaborn_are_boxes(axes):
    found = axes(SNS + "sns.boxplot(pd.concat([df, df + df.iloc[:0]]), x='k', y='v', hue='h')")
    assert set(points(found)) == {"x", "y"} and points(found)["y"][1] == ["b", 4, 4, 4, 4, 4]
    found = axes(PD + "pd.DataFrame({'a': [1, 2, 3], 'b': [3, 4, 5]}).boxplot()")
    assert found["series"][0]["points"] == [["a", 1, 1.5, 2, 2.5, 3], ["b", 3, 3.5, 4, 4.5, 5]]


def test_a_heat_map_has_its_values_and_an_image_its_size(chart, axes):
    found = chart(SNS + "sns.heatmap(pd.DataFrame([[1.0, None], [3, 4]], index=['r', 's'], columns=['c', 'd']))")
    (only,) = found["axes"]  # not that of the colour bar
    (series,) = only["series"]
    assert only["kind"] == "heatmap" and (only["x_tick_labels"], only["y_tick_labels"]) == (["c", "d"], ["r", "s"])
    assert series["values"] == [[1, {"$type": "float", "value": "nan"}], [3, 4]] and (series["min"], series["max"]) == (1, 4)
    (series,) = axes(PLT + "plt.imshow(np.zeros((90, 100)))")["series"]
    assert (series["kind"], series["shape"], series["values"], series["truncated"], series["count"]) == ("heatmap", [90, 100], None, True, 9000)
    (series,) = axes(PLT + "plt.imshow(np.zeros((9, 8, 3)))")["series"]
    assert (series["kind"], series["shape"], series["points"]) == ("image", [9, 8, 3], [])


NAN = {"$type": "float", "value": "nan"}


def test_times_are_iso_8601_and_missing_values_are_marked(axes):
    days = "days = pd.to_datetime(['2024-01-02', '2024-01-05', '2024-01-06'])\n"
    expected = [["2024-01-02T00:00:00", 1], ["2024-01-05T00:00:00", NAN], ["2024-01-06T00:00:00", 3]]
    for draw in ("plt.plot(days, [1, np.nan, 3])", "pd.Series([1, np.nan, 3], index=days).plot()"):
        found = axes(PD + days + draw)
        assert [p for p in points(found)[None] if p[1] != NAN] == [expected[0], expected[2]], draw
    assert points(axes(PD + days + "plt.plot(days, [1, np.nan, 3])"))[None] == expected
    assert points(axes(PD + days + "plt.bar(days, [1, 2, 3])"))[None][0] == ["2024-01-02T00:00:00", 1]
    series = "pd.Series([1, 2], index=pd.{}).plot()"
    assert points(axes(PD + series.format("date_range('2024-01-31', periods=2)")))[None][1] == ["2024-02-01T00:00:00", 2]
    assert points(axes(PD + series.format("period_range('2024-01', periods=2, freq='M')")))[None][1] == ["2024-02-01T00:00:00", 2]
    code = "plt.plot(pd.to_datetime(['2024-03-31 00:30', '2024-03-31 01:30'], utc=True).tz_convert('Europe/Berlin'), [1, 2])"
    assert [x for x, _ in points(axes(PD + code))[None]] == ["2024-03-31T01:30:00+01:00", "2024-03-31T03:30:00+02:00"]
    code = "plt.plot(pd.to_datetime(['2024-01-02 03:04:05.25']), [1], 'o')"
    assert points(axes(PD + code))[None][0][0].startswith("2024-01-02T03:04:05.25")


def test_large_series_are_thinned_and_say_so(chart):
    (axes,) = chart(PLT + "plt.plot(np.arange(100_000), np.arange(100_000))")["axes"]
    (series,) = axes["series"]
    assert len(series["points"]) == 1_000 and series["count"] == 100_000 and series["truncated"] is True
    assert series["points"][0] == [0, 0] and series["points"][-1] == [99_999, 99_999]
    (axes,) = chart(PLT + "for n in range(60):\n    plt.plot(np.arange(2_000))")["axes"]
    assert len(axes["series"]) == 50 and axes["series_count"] == 60 and axes["truncated"] is True
    assert all(len(s["points"]) >= 150 for s in axes["series"]) and sum(len(s["points"]) for s in axes["series"]) <= 10_000
    found = chart(PLT + "fig, axes = plt.subplots(6, 10, figsize=(6, 4))")
    assert len(found["axes"]) == 50 and found["axes_count"] == 60 and found["truncated"] is True


def test_several_axes_come_in_order_and_odd_ones_are_unknown(chart):
    found = chart(PLT + "fig, (a, b) = plt.subplots(1, 2)\na.set_title('A')\nb.fill_between([1, 2], [1, 2])\nb.set_title('B', loc='left')")
    assert [(a["kind"], a["title"], a["series"]) for a in found["axes"]] == [("unknown", "A", []), ("unknown", "B", [])]
    (axes,) = chart(PLT + "plt.figure().add_subplot(projection='3d').plot([1, 2], [1, 2], [1, 2])")["axes"]
    assert (axes["kind"], axes["projection"]) == ("unknown", "3d")
    (axes,) = chart(PLT + "plt.polar([0, 1], [1, 2])")["axes"]
    assert (axes["kind"], axes["projection"]) == ("line", "polar")


def test_numbers_between_named_ticks_stay_numbers(axes):
    found = axes(PLT + "plt.plot([0, 25, 50], [1, 2, 3])\nplt.xticks([0, 50], ['low', 'high'])")
    assert points(found)[None] == [[0, 1], [25, 2], [50, 3]] and found["x_tick_labels"] == ["low", "high"]


HOSTILE = [
    "class L(plt.Line2D):\n    def get_xydata(self): raise ValueError\nax.add_line(L([0, 1], [0, 1]))",
    "class Line2D(plt.Line2D):\n    def get_xydata(self): raise SystemExit\nax.add_line(Line2D([0, 1], [0, 1]))",
    "ax.get_title = None",
    "type(ax).get_legend = property(lambda s: 1 / 0)",
    "ax.containers.append(5)\nax.set_xlabel('x' * 100_000)",
    "fig.get_suptitle = lambda: 1 / 0",
    "ax.plot([0, 1], [0, np.inf])\nax.plot([], [])\nax.bar([], [])\nax.scatter([], [])",
    "ax.imshow([[np.nan]])",
]


@pytest.mark.parametrize("code", HOSTILE)
def test_an_odd_figure_costs_its_chart_at_most(run, code):
    o = run(PLT + "fig, ax = plt.subplots()\nax.plot([1, 2], label='kept')\n" + code + "\nplt.show()\nprint('after')")
    assert len(o.images) == 1 and o.stdout == "after\n" and o.error is None and len(str(o.displays[0]["metadata"])) < 5_000


def test_reading_a_chart_changes_nothing_of_the_figure(run):
    code = (
        "import io, sys\ncharts = sys.modules['fumehood_runner.charts']\n"
        "def png(figure):\n    b = io.BytesIO()\n    figure.savefig(b, format='png')\n    return b.getvalue()\n"
        "same = []\nfor draw in (lambda: plt.bar(['a', 'b'], [1, 2]), lambda: plt.hist([1, 2, 3]), lambda: sns.heatmap([[1, 2], [3, 4]]),\n"
        "             lambda: sns.boxplot(df, x='k', y='v', hue='h'), lambda: df.plot.scatter('v', 'v'), lambda: pd.Series([1, 2], pd.date_range('2024', periods=2)).plot()):\n"
        "    plt.figure()\n    draw()\n    fig = plt.gcf()\n    before = png(fig)\n    fig.stale = False\n"
        "    chart = charts.describe(fig)\n    same.append(chart is not None and not fig.stale and png(fig) == before)\n    plt.close('all')\nsame"
    )
    assert run(SNS + code).result == [True] * 6


def test_reading_a_chart_costs_little_next_to_drawing_it(run):
    code = (
        "import sys, time\ncharts, figures = sys.modules['fumehood_runner.charts'], sys.modules['fumehood_runner.figures']\n"
        "def seconds(f):\n    best = 9\n    for _ in range(5):\n        t = time.perf_counter()\n        f()\n        best = min(best, time.perf_counter() - t)\n    return best\n"
        "shares = []\nfor draw in (lambda: plt.plot(range(100_000)), lambda: [plt.plot(range(1_000)) for _ in range(50)], lambda: plt.hist(range(1_000), bins=100),\n"
        "             lambda: sns.boxplot(df, x='k', y='v', hue='h'), lambda: plt.scatter(range(10_000), range(10_000))):\n"
        "    draw()\n    fig = plt.gcf()\n    drawn = seconds(lambda: figures.draw_png(fig))\n    shares.append(seconds(lambda: charts.describe(fig)) / drawn)\n    plt.close('all')\n"
        "shares"
    )
    # Far below that on a quiet machine (see docs/values.md); this is for what is slower by an order of magnitude.
    assert all(share < 0.5 for share in run(SNS + code).result)
