"""Pictures: each once, in its place."""

import base64
import struct

import pytest

SHOW = "import matplotlib.pyplot as plt\n"


def size_of(png):
    data = base64.b64decode(png)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


class TestMatplotlib:
    @pytest.fixture(autouse=True)
    def _needs(self, needs_module):
        needs_module("matplotlib")

    def test_show_delivers_the_figure_between_the_prints(self, run):
        o = run(SHOW + "print('a')\nplt.plot([1, 4, 9])\nplt.show()\nprint('b')")
        assert [k for k, _ in o.merged] == ["stdout", "display", "stdout"] and len(o.images) == 1
        assert o.displays[0]["metadata"]["kind"] == "figure" and o.stderr == "" and size_of(o.images[0])[0] > 300

    def test_an_open_figure_is_delivered_once_at_the_end(self, session):
        assert len(session.cell(SHOW + "plt.plot([1, 2, 4]);").images) == 1
        assert session.cell("print('no chart here')").images == []
        assert len(session.cell("plt.plot([9, 9]); plt.show(); plt.close('all')").images) == 1
        o = session.cell("len(plt.get_fignums())")
        assert o.images == [] and o.result == 0

    def test_a_figure_that_is_the_value_is_not_delivered_twice(self, session):
        o = session.cell(SHOW + "fig, ax = plt.subplots()\nax.plot([1, 2])\nfig")
        assert len(o.images) == 1 and o.displays[0]["metadata"]["kind"] == "result"
        assert len(session.cell("fig, ax = plt.subplots()\nax.plot([1, 2])\nplt.show()\nfig").images) == 1
        assert len(session.cell("fig, ax = plt.subplots()\ndisplay(fig)").images) == 1

    def test_a_figure_changed_after_it_was_shown_is_shown_again(self, session):
        o = session.cell(SHOW + "fig, ax = plt.subplots()\ndisplay(fig)\nax.plot([1, 2])\ndisplay(fig)")
        assert len(o.images) == 2

    def test_savefig_leaves_the_figure_to_be_delivered(self, run, workspace):
        assert len(run(SHOW + "plt.plot([1])\nplt.savefig('x.png')").images) == 1
        assert (workspace / "x.png").stat().st_size > 1000
        assert run(SHOW + "plt.plot([1])\nplt.savefig('x.png')\nplt.close()").images == []

    def test_choosing_agg_or_fig_show_makes_no_difference(self, run):
        o = run("import matplotlib\nmatplotlib.use('Agg')\n" + SHOW + "plt.plot([1])\nplt.show()\nprint('x')")
        assert [k for k, _ in o.merged] == ["display", "stdout"] and o.stderr == ""
        o = run(SHOW + "f, a = plt.subplots()\nf.show()\nprint('x')")
        assert [k for k, _ in o.merged] == ["display", "stdout"] and o.stderr == ""

    def test_several_figures_come_in_order(self, run):
        code = SHOW + "for w in (3, 4, 5):\n    plt.figure(figsize=(w, 2))\n    plt.plot([w])\nplt.show()"
        widths = [size_of(i)[0] for i in run(code).images]
        assert len(widths) == 3 and widths == sorted(widths)

    def test_show_works_after_sys_path_and_modules_were_changed(self, run):
        code = "import sys, os\nsys.path[:] = [p for p in sys.path if 'guest/runner' not in p]\nos.chdir('/')\n"
        assert len(run(code + SHOW + "plt.plot([1]); plt.show()").images) == 1

    def test_a_figure_that_cannot_be_drawn_is_the_user_s_error(self, run):
        bad = SHOW + "class Bad(plt.Line2D):\n    def draw(self, r): raise ValueError('cannot draw')\nplt.gca().add_line(Bad([0, 1], [0, 1]))\n"
        o = run(bad + "plt.show()")
        assert o.error["type"] == "ValueError" and o.error["line"] == 3
        o = run(bad)
        assert o.exit_code == 0 and any(w["code"] == "figure_failed" for w in o.warnings)

    def test_figures_open_at_an_error_are_still_delivered(self, run):
        o = run(SHOW + "plt.plot([1])\n1/0")
        assert len(o.images) == 1 and o.error["type"] == "ZeroDivisionError"

    def test_an_artist_far_away_does_not_make_the_picture_gigantic(self, run):
        for x in (300, 3e4):
            o = run(SHOW + f"plt.plot([0, 1])\nplt.text({x}, 0, 'far', clip_on=False)\nplt.show()")
            assert max(size_of(o.images[0])) < 2000

    def test_pandas_and_seaborn_plots_are_delivered(self, run, needs_module):
        needs_module("pandas", "seaborn")
        o = run("import pandas as pd, seaborn as sns\ndf = pd.DataFrame({'a': [1, 2]})\nsns.barplot(df)")
        assert len(o.images) == 1 and o.error is None


def test_a_pil_image_is_shown_as_a_picture(run, needs_module):
    needs_module("PIL")
    o = run("from PIL import Image\nImage.new('RGB', (16, 8), 'red')")
    assert size_of(o.images[0]) == (16, 8) and o.stdout == "" and "image/jpeg" not in o.displays[0]["mime"]
    o = run("from PIL import Image\nprint('a')\nImage.new('CMYK', (16, 8)).show()\nprint('b')")
    assert [k for k, _ in o.merged] == ["stdout", "display", "stdout"] and size_of(o.images[0]) == (16, 8)


PLOTLY = "application/vnd.plotly.v1+json"


def test_a_plotly_figure_is_strict_json(run, needs_module):
    needs_module("plotly")
    code = (
        "import datetime as dt\nimport plotly.graph_objects as go\ndays = [dt.date(2024, 2, d) for d in (27, 28, 29)]\n"
        "fig = go.Figure(go.Scatter(x=days, y=[1.5, float('nan'), 4.0], name='leap'))\n"
    )
    o = run(code + "fig.show()\nprint('shown', len(days))")
    trace = o.displays[0]["mime"][PLOTLY]["data"][0]
    assert trace["x"] == ["2024-02-27", "2024-02-28", "2024-02-29"] and trace["y"] == [1.5, None, 4.0]
    assert [k for k, _ in o.merged] == ["display", "stdout"] and o.stdout == "shown 3\n" and o.stderr == ""
    for last in ("fig", "display(fig)", "import plotly.io as pio; pio.show(fig)"):
        o = run(code + last)
        assert len(o.displays) == 1 and PLOTLY in o.displays[0]["mime"], last
