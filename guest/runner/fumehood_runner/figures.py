"""Pictures: matplotlib figures, plotly figures and PIL images become displays, each shown once and in its place.

matplotlib draws with its Agg canvas, whose figure managers are replaced by ones that publish a PNG when shown. That holds
for code that says nothing, for `matplotlib.use("Agg")` and for `%matplotlib inline` alike, and needs no backend of our own
that a child process could not import.
"""

import binascii
import io
import json
import os
import sys
import weakref

from . import charts, text
from .values import is_a, loaded, plain_json

PNG = "image/png"
PLOTLY = "application/vnd.plotly.v1+json"
_from_json = json.JSONDecoder().decode
_MAX_PIXELS = 40_000_000
_MAX_SIDE = 30_000


class Figures:
    """The figures of this interpreter; `publish(mime, metadata)` shows one."""

    def __init__(self, publish, warn):
        self._publish, self._warn = publish, warn
        self._shown = weakref.WeakSet()

    def hooks(self):
        """Adjustments for `imports.AfterImport`."""
        return {
            "matplotlib.backends.backend_agg": self._adjust_agg,
            "plotly.io._renderers": self._adjust_plotly,
            "PIL.ImageShow": self._adjust_pil,
        }

    def forms_of(self, obj):
        """(rich forms, metadata) of a figure or image, None for any other object. Drawing may raise what the user's callbacks raise."""
        if is_a(obj, "matplotlib.figure", "Figure"):
            bundle = {"text/plain": text.bounded_repr(obj, 200)}
            if not self._is_new(obj):
                return bundle, {}
            bundle[PNG] = self._png_of(obj)
            return bundle, _chart_of(obj)
        if is_a(obj, "plotly.basedatatypes", "BaseFigure"):
            return plotly_mime(obj), {}
        if is_a(obj, "PIL.Image", "Image"):
            return image_mime(obj), {}
        return None

    def show(self, figure):
        """Publish a matplotlib figure unless it has been shown as it is."""
        if self._is_new(figure):
            bundle = {"text/plain": text.bounded_repr(figure, 200), PNG: self._png_of(figure)}
            self._publish(bundle, {"kind": "figure", **_chart_of(figure)})

    def show_open(self):
        """End of an execution: publish every figure that is still open, then close all."""
        helper = loaded("matplotlib._pylab_helpers", "Gcf")
        if helper is None:
            return
        for manager in helper.get_all_fig_managers():
            try:
                self.show(manager.canvas.figure)
            except Exception as e:
                self._warn("figure_failed", f"figure {manager.num} cannot be drawn: {text.class_name(e)}: {text.message_of(e, 500)}")
        helper.destroy_all()

    def close(self, figure):
        """Close a figure that has been delivered as the result."""
        helper = loaded("matplotlib._pylab_helpers", "Gcf")
        if helper is not None and is_a(figure, "matplotlib.figure", "Figure"):
            helper.destroy_fig(figure)

    def _is_new(self, figure):
        return figure not in self._shown or figure.stale

    def _png_of(self, figure):
        data = draw_png(figure)
        self._shown.add(figure)
        # Restoring the colours after drawing marks the figure as changed; it is not.
        figure.stale = False
        return data

    def _adjust_agg(self, backend_agg):
        from matplotlib._pylab_helpers import Gcf
        from matplotlib.backend_bases import FigureManagerBase

        figures = self

        class FigureManager(FigureManagerBase):
            """Shows a figure by publishing it, then closes it, as the window of a script would be closed."""

            def show(self):
                figures.show(self.canvas.figure)
                Gcf.destroy(self)

            @classmethod
            def pyplot_show(cls, *, block=None):
                for manager in Gcf.get_all_fig_managers():
                    manager.show()

        backend_agg.FigureCanvasAgg.manager_class = FigureManager

    def _adjust_plotly(self, renderers):
        def show(fig, renderer=None, validate=True, **options):
            """Publish the figure; without a browser every renderer means this."""
            self._publish(plotly_mime(fig, validate), {"kind": "figure"})

        renderers.show = show

    def _adjust_pil(self, image_show):
        publish = self._publish

        class Viewer(image_show.Viewer):
            """The only viewer there is in a sandbox."""

            def show(self, image, **options):
                publish(image_mime(image), {"kind": "figure"})
                return True

        image_show.register(Viewer, 0)


def _chart_of(figure):
    chart = charts.describe(figure)
    return {} if chart is None else {"chart": chart}


def draw_png(figure):
    """Base64 of the figure as PNG, cropped or grown to its content unless that would make it gigantic."""
    buffer = io.BytesIO()
    figure.canvas.print_figure(
        buffer, format="png", dpi=figure.dpi, bbox_inches=_content_box(figure), facecolor=figure.get_facecolor(),
        edgecolor=figure.get_edgecolor(),
    )  # fmt: skip
    return _base64(buffer.getvalue())


def _content_box(figure):
    """The tight box in inches. None (the figure as laid out) if one artist far away would need gigabytes of pixels."""
    figure.draw_without_rendering()
    box = figure.get_tightbbox()
    width, height = box.width * figure.dpi, box.height * figure.dpi
    if not (0 < width <= _MAX_SIDE and 0 < height <= _MAX_SIDE and width * height <= _MAX_PIXELS):
        return None
    return box.padded(loaded("matplotlib", "rcParams")["savefig.pad_inches"])


def image_mime(image):
    """A PIL image as PNG, scaled down if it is gigantic."""
    bundle = {"text/plain": text.bounded_repr(image, 200)}
    width, height = image.size
    if not width or not height:
        return bundle
    if width * height > _MAX_PIXELS or max(width, height) > _MAX_SIDE:
        image = image.copy()
        scale = min((_MAX_PIXELS / (width * height)) ** 0.5, _MAX_SIDE / max(width, height))
        image.thumbnail((max(1, int(width * scale)), max(1, int(height * scale))))
    buffer = io.BytesIO()
    try:
        image.save(buffer, "PNG", compress_level=1)
    except OSError:
        buffer = io.BytesIO()  # a mode that PNG does not know
        image.convert("RGB").save(buffer, "PNG", compress_level=1)
    bundle[PNG] = _base64(buffer.getvalue())
    return bundle


def plotly_mime(figure, validate=True):
    """plotly's JSON (gaps are null, dates ISO 8601); `figure` may be a dict of one."""
    if not hasattr(figure, "to_json"):
        figure = sys.modules["plotly.graph_objects"].Figure(figure, skip_invalid=not validate)
    data = plain_json(_from_json(figure.to_json(validate=False)))
    return {"text/plain": f"<plotly figure, {len(data.get('data') or ())} traces>", PLOTLY: data}


def choose_backend():
    """Before matplotlib is imported: Agg, without trying each toolkit for a display that is not there."""
    os.environ.setdefault("MPLBACKEND", "agg")


def _base64(data):
    return binascii.b2a_base64(data, newline=False).decode("ascii")
