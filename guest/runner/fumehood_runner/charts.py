"""The data behind a matplotlib figure, read from what was drawn: for readers that do not see, and to draw it again elsewhere.

Only matplotlib's own artists are asked, after drawing, and nothing of the figure is changed; seaborn and pandas draw with the
same artists. What is drawn in another way, or by a class of the user's, has no series. Bounded in number, not in shape: of a
series with too many points evenly chosen ones are given, with the true count.
"""

import math

from . import text, values

MAX_AXES = 50
MAX_SERIES = 50
MAX_POINTS = 1_000
MAX_FIGURE_POINTS = 10_000
MAX_CELLS = 2_500
"""Of a heat map."""
MAX_TICKS = 200
_MAX_ARTISTS = 2_000
_LABEL = 200
_DAY_US = 86_400_000_000
_NO_LINE = ("None", "none", " ", "")


def describe(figure):
    """What `metadata.chart` says of a drawn figure, None if it cannot be read. Raises nothing but KeyboardInterrupt."""
    try:
        return _Figure(figure).describe()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


class _Budget:
    """Points that the whole figure may still have, and the number of series that are to share them."""

    def __init__(self, series):
        self.left, self._series = MAX_FIGURE_POINTS, series

    def chosen(self, count):
        """Which of so many points are given: an index for an array."""
        share = self.left // max(self._series, 1)
        self._series -= 1
        most = min(count, MAX_POINTS, max(share, 0))
        self.left -= most
        if most == count:
            return slice(None)
        if most < 2:
            return slice(most)
        import numpy

        return numpy.linspace(0, count - 1, most).round().astype(int)


class _Figure:
    def __init__(self, figure):
        # The colour bar explains another axes and has no data of its own.
        axes = [ax for ax in figure.axes if ax.get_visible() and ax.get_label() != "<colorbar>"]
        self._figure, self._shown, self._count = figure, axes[:MAX_AXES], len(axes)
        drawn = (len(ax.lines) + len(ax.collections) + len(ax.containers) + bool(ax.patches) for ax in self._shown)
        self._budget = _Budget(sum(min(n, MAX_SERIES) for n in drawn))

    def describe(self):
        title = self._figure.get_suptitle() if hasattr(self._figure, "get_suptitle") else ""
        axes = [self._axes(ax) for ax in self._shown]
        return {"title": _text(title), "axes": axes, "axes_count": self._count, "truncated": self._count > len(axes)}

    def _axes(self, ax):
        legend = _Legend(ax.get_legend() or next(iter(self._figure.legends), None))
        out = _attempt(lambda: _Axes(ax, legend, self._budget).describe())
        return out or {"kind": "unknown", "title": None, "series": [], "truncated": False}


def _attempt(function):
    """What it returns, or None if it raises: an artist of an unknown kind costs itself."""
    try:
        return function()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def _text(value):
    value = "" if value is None else str(value).strip()
    return text.cut(value, _LABEL) if value else None


def _own_label(artist):
    """The label that the user gave; matplotlib's own begin with an underscore."""
    label = artist.get_label()
    return None if label is None or str(label).startswith("_") else _text(label)


def _floats(data):
    """Any of matplotlib's arrays as one of floats; what is masked is NaN."""
    import numpy

    return numpy.ma.filled(numpy.ma.asarray(data).astype(float), math.nan)


def _number(value):
    """A float as JSON, in the encoding of results."""
    value = float(value)
    return value if math.isfinite(value) else values.encode(value)[0]


def _tidy(array):
    """Without the last digits, which matplotlib's own arithmetic has put there."""
    import numpy

    return numpy.array([float(f"{v:.12g}") for v in array.tolist()])


def _numbers(array):
    import numpy

    listed = array.tolist()
    return listed if numpy.isfinite(array).all() else [_number(v) for v in listed]


class _Legend:
    """Labels by colour: seaborn gives them to entries of the legend, not to what is drawn."""

    def __init__(self, legend):
        self.entries = []
        _attempt(lambda: self._read(legend))

    def _read(self, legend):
        if legend is None:
            return
        handles = getattr(legend, "legend_handles", None) or getattr(legend, "legendHandles", ())
        found = {}
        for handle, label in zip(handles, legend.get_texts()):
            colour, label = _colour(handle), _text(label.get_text())
            if colour is not None and label is not None:
                found.setdefault(tuple(round(c, 3) for c in colour), []).append((colour, label))
        # Two entries of one colour tell nothing apart.
        self.entries = [entries[0] for entries in found.values() if len(entries) == 1]

    def label_of(self, artist):
        """That of the entry with the artist's colour."""
        colour = _attempt(lambda: _colour(artist)) if self.entries else None
        if colour is None:
            return None
        return next((label for c, label in self.entries if all(abs(a - b) < 2e-3 for a, b in zip(c, colour))), None)

    def parts(self, colours):
        """[(label, mask)] of points with these colours, if entries of the legend account for all of them."""
        import numpy

        masks = [(label, numpy.abs(colours[:, :3] - numpy.array(colour)).max(axis=1) < 2e-3) for colour, label in self.entries]
        masks = [(label, mask) for label, mask in masks if mask.any()]
        return masks if len(masks) > 1 and sum(mask.sum() for _, mask in masks) == len(colours) else []


def _colour(artist):
    """Red, green and blue of a line, patch or collection, None if it has not one."""
    from matplotlib.colors import to_rgb
    from matplotlib.lines import Line2D

    if isinstance(artist, Line2D):
        drawn = artist.get_linestyle() not in _NO_LINE
        return to_rgb(artist.get_color() if drawn else artist.get_markerfacecolor())
    colour = artist.get_facecolor()
    if getattr(colour, "ndim", 1) == 2:
        return tuple(colour[0][:3]) if len(colour) == 1 else None
    return to_rgb(colour)


class _Axis:
    """The x or y axis: what its numbers stand for."""

    def __init__(self, ax, axis):
        self._ax, self._axis = ax, axis
        self.label, self.scale = _text(axis.get_label_text()), axis.get_scale()
        self.names = _attempt(self._unit_names) or {}
        self.is_category = bool(self.names)
        """Its numbers stand for nothing else; else names may have been put where numbers are."""
        if not self.names:
            self.names = _attempt(self._tick_names) or {}
        converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
        self._converters = {base.__name__ for base in type(converter).__mro__}

    def _unit_names(self):
        """{position: text} of an axis that was given text."""
        mapping = getattr(self._axis.units, "_mapping", None)
        return {float(position): _text(name) or "" for name, position in mapping.items()} if mapping else {}

    def _tick_names(self):
        """{position: text} of ticks that were named one by one, by code or by pandas."""
        formatter, locator = self._axis.get_major_formatter(), self._axis.get_major_locator()
        function = getattr(formatter, "func", None)
        if getattr(getattr(function, "func", None), "__name__", "") == "_format_with_dict":
            named = function.args[0]
        elif type(formatter).__name__ == "FixedFormatter" and hasattr(locator, "locs"):
            named = dict(zip(locator.locs, formatter.seq))
        else:
            return {}
        named = {float(position): _text(name) or "" for position, name in named.items()}
        return named if any(named.values()) else {}

    def tick_labels(self):
        """Names in the order of their places, None if it has none."""
        return [self.names[position] for position in sorted(self.names)][:MAX_TICKS] or None

    def read(self, array, derived=False):
        """Numbers of this axis as JSON: text where they stand for names or times. `derived`: they are where something was drawn,
        which may be beside its name's place."""
        if self.names:
            named = self._named(array, derived or self.is_category)
            if named is not None:
                return named
        if "PeriodConverter" in self._converters:
            return self._periods(array)
        if self._converters & {"DateConverter", "_SwitchableDateConverter"}:
            return self._times(array)
        return _numbers(_tidy(array) if derived else array)

    def _named(self, array, nearest):
        """None if a number is at no name's place."""
        import numpy

        places = numpy.array(sorted(self.names))
        after = numpy.clip(numpy.searchsorted(places, array), 0, len(places) - 1)
        before = numpy.maximum(after - 1, 0)
        found = numpy.where(abs(places[before] - array) <= abs(places[after] - array), before, after)
        reach = (numpy.diff(places).min() if len(places) > 1 else 1.0) * (0.5 if nearest else 1e-9)
        if not (abs(places[found] - array) <= reach).all():
            return None
        return [self.names[place] for place in places[found].tolist()]

    def _times(self, array):
        import numpy
        from matplotlib import dates

        known = numpy.isfinite(array)
        zone = self._axis.units
        if hasattr(zone, "utcoffset"):
            listed = [dates.num2date(v, zone).isoformat() if k else None for v, k in zip(array.tolist(), known)]
        else:
            since = numpy.round(numpy.where(known, array, 0) * _DAY_US).astype("timedelta64[us]")
            moments = numpy.datetime64(dates.get_epoch()).astype("datetime64[us]") + since
            whole = (moments == moments.astype("datetime64[s]")).all()
            listed = numpy.datetime_as_string(moments, unit="s" if whole else "us").tolist()
        return [v if k else {"$type": "datetime", "value": "NaT"} for v, k in zip(listed, known)]

    def _periods(self, array):
        frequency = getattr(self._ax, "freq", None) or getattr(self._axis, "freq", None)
        index = values.loaded("pandas", "PeriodIndex").from_ordinals(array.round().astype("int64"), freq=frequency)
        return [v.isoformat() for v in index.to_timestamp()]


class _Axes:
    """One set of axes; each method reads one kind of what can be in it."""

    def __init__(self, ax, legend, budget):
        self._ax, self._legend, self._budget = ax, legend, budget
        self._x, self._y = _Axis(ax, ax.xaxis), _Axis(ax, ax.yaxis)
        self._read = set()
        """Ids of artists that are a part of something."""
        self._labels = {}
        self._series, self._count = [], 0

    def describe(self):
        ax = self._ax
        if ax.name != "3d":
            # The first kind found names the axes: lines over bars are there for the bars.
            for read in (self._pies, self._boxes, self._images, self._bars, self._steps, self._containers, self._scatters, self._lines):
                _attempt(read)
        titles = (ax.get_title(loc=loc) for loc in ("center", "left", "right"))
        out = {
            "kind": self._series[0]["kind"] if self._series else "unknown",
            "title": _text(next(filter(None, titles), "")),
            "x_label": self._x.label, "y_label": self._y.label, "x_scale": self._x.scale, "y_scale": self._y.scale,
        }  # fmt: skip
        if ax.name != "rectilinear":
            out["projection"] = str(ax.name)
        for name, axis in (("x_tick_labels", self._x), ("y_tick_labels", self._y)):
            labels = axis.tick_labels()
            if labels:
                out[name] = labels
        return {**out, "series": self._series, "series_count": self._count, "truncated": self._count > len(self._series)}

    def _add(self, kind, label, count, read, **more):
        """One series, if there is room; `read(chosen)` gives its points."""
        self._count += 1
        if len(self._series) >= MAX_SERIES:
            return
        points = read(self._budget.chosen(count))
        self._series.append(
            {"kind": kind, "label": label, "points": points, "count": count, "truncated": len(points) < count, **more}
        )

    def _label(self, artist):
        label = self._labels.get(id(artist))
        return label or _own_label(artist) or self._legend.label_of(artist)

    def _artists(self, group, name):
        """Visible ones of a class of matplotlib's, which hold its own code."""
        return [a for a in list(group)[:_MAX_ARTISTS] if type(a).__name__ == name and a.get_visible() and id(a) not in self._read]

    # Each kind

    def _pies(self):
        rings = {}
        for wedge in self._artists(self._ax.patches, "Wedge"):
            rings.setdefault(round(float(wedge.r), 6), []).append(wedge)
        for wedges in rings.values():
            labels = [self._label(w) for w in wedges]
            shares = [_number((w.theta2 - w.theta1) / 360) for w in wedges]
            points = list(map(list, zip(labels, shares)))
            self._add("pie", None, len(points), lambda chosen, points=points: _pick(points, chosen))

    def _boxes(self):
        lines = [(line, line.get_xydata()) for line in self._artists(self._ax.lines, "Line2D")]
        boxes = [(patch, patch.get_path().vertices) for patch in self._artists(self._ax.patches, "PathPatch")]
        boxes += [(line, data) for line, data in lines if len(data) == 5 and (data[0] == data[-1]).all()]
        if not boxes:
            return
        parts = _BoxParts(lines)
        groups = {}
        for artist, outline in boxes:
            box = parts.box_of(outline)
            if box is not None:
                self._read |= {id(artist), *map(id, box.parts)}
                groups.setdefault((self._legend.label_of(artist), box.upright), []).append(box)
        for (label, upright), found in groups.items():
            axis = self._x if upright else self._y
            self._add("box", label, len(found), lambda chosen, b=found, a=axis: self._box_points(b, a, chosen), **{
                "orientation": "vertical" if upright else "horizontal", "outliers": self._outliers(found, axis),
            })  # fmt: skip

    def _box_points(self, boxes, axis, chosen):
        boxes = _pick(boxes, chosen)
        labels = _labels_at(axis, [box.centre for box in boxes])
        return [[label, *map(_number, box.five)] for label, box in zip(labels, boxes)]

    def _outliers(self, boxes, axis):
        pairs = [(box.centre, value) for box in boxes for value in box.outliers][:MAX_POINTS]
        pairs = pairs[:max(self._budget.left, 0)]
        self._budget.left -= len(pairs)
        return [[label, _number(value)] for label, (_, value) in zip(_labels_at(axis, [p[0] for p in pairs]), pairs)]

    def _images(self):
        import numpy

        found = self._artists(self._ax.images, "AxesImage") + self._artists(self._ax.collections, "QuadMesh")
        for artist in found:
            data = artist.get_array()
            if data.ndim == 1 and hasattr(artist, "get_coordinates"):
                data = data.reshape([n - 1 for n in artist.get_coordinates().shape[:2]])
            more = {"shape": [int(n) for n in data.shape]}
            if data.ndim != 2:
                self._add("image", _own_label(artist), 0, lambda chosen: [], **more)
                continue
            # matplotlib has masked what is missing.
            ends = data.min(), data.max()
            if not any(end is numpy.ma.masked for end in ends):
                more |= {"min": _number(ends[0]), "max": _number(ends[1])}
            fits = data.size <= min(MAX_CELLS, self._budget.left)
            self._budget.left -= data.size if fits else 0
            more |= {"values": [_numbers(row) for row in _floats(data)] if fits else None}
            self._add("heatmap", _own_label(artist), 0, lambda chosen: [], **more)
            self._series[-1].update(count=int(data.size), truncated=not fits)

    def _bars(self):
        for container in list(self._ax.containers)[:_MAX_ARTISTS]:
            if type(container).__name__ == "BarContainer" and len(container.patches):
                _attempt(lambda: self._bar(container))

    def _bar(self, container):
        bars = container.patches
        upright = getattr(container, "orientation", None) != "horizontal"
        axis = self._x if upright else self._y

        def read(bars):
            if upright:
                return _floats([(b.get_x(), b.get_width(), b.get_y(), b.get_height()) for b in bars]).T
            return _floats([(b.get_y(), b.get_height(), b.get_x(), b.get_width()) for b in bars]).T

        label = _own_label(container) or _own_label(bars[0]) or self._legend.label_of(bars[0])
        if not axis.names and _are_bins(*read(bars[:MAX_POINTS])[:2]):

            def bins(chosen):
                start, width, _, height = read(_pick(bars, chosen))
                return list(map(list, zip(axis.read(start, True), axis.read(start + width, True), _numbers(height))))

            self._add("hist", label, len(bars), bins, orientation="vertical" if upright else "horizontal")
            return
        base = []

        def points(chosen):
            start, width, foot, height = read(_pick(bars, chosen))
            if foot.any():
                base.extend(_numbers(_tidy(foot)))
            return list(map(list, zip(axis.read(start + width / 2, True), _numbers(height))))

        self._add("bar" if upright else "barh", label, len(bars), points)
        if base:
            self._series[-1]["base"] = base

    def _steps(self):
        for patch in self._artists(self._ax.patches, "StepPatch"):
            heights, edges = map(_floats, patch.get_data()[:2])

            def bins(chosen, heights=heights, edges=edges):
                ends = self._x.read(edges[:-1][chosen]), self._x.read(edges[1:][chosen])
                return list(map(list, zip(*ends, _numbers(heights[chosen]))))

            self._add("hist", self._label(patch), len(heights), bins, orientation="vertical")

    def _containers(self):
        """Lines with bars of errors, and stems: one series each, that of their points."""
        for container in list(self._ax.containers)[:_MAX_ARTISTS]:
            name = type(container).__name__
            if name == "ErrorbarContainer":
                line, caps, _ = container.lines
                self._read |= {id(cap) for cap in caps}
            elif name == "StemContainer":
                line = container.markerline
                self._read.add(id(container.baseline))
            else:
                continue
            if line is not None:
                self._labels[id(line)] = _own_label(container)

    def _scatters(self):
        for collection in self._artists(self._ax.collections, "PathCollection"):
            _attempt(lambda: self._scatter(collection))

    def _scatter(self, collection):
        if collection.get_offset_transform() != self._ax.transData:
            return
        places, colours = collection.get_offsets(), collection.get_facecolor()
        if not len(places):
            return
        label, parts = self._label(collection), []
        if label is None and len(colours) == len(places) and self._legend.entries:
            parts = self._legend.parts(colours)
        for label, mask in parts or [(label, slice(None))]:
            self._points("scatter", label, places[mask])

    def _lines(self):
        for line in self._artists(self._ax.lines, "Line2D"):
            _attempt(lambda: self._line(line))

    def _line(self, line):
        # Lines across the whole axes (axhline) are in other coordinates.
        if line.get_transform() != self._ax.transData:
            return
        places = line.get_xydata()
        drawn = line.get_linestyle() not in _NO_LINE
        if not len(places) or not (drawn or line.get_marker() not in (None, *_NO_LINE)):
            return
        label = self._label(line)
        if label is None and self._series and self._series[0]["kind"] in ("bar", "barh", "box") and _is_mark(places):
            return
        self._points("line" if drawn else "scatter", label, places)

    def _points(self, kind, label, places):
        def read(chosen):
            part = _floats(places[chosen])
            return list(map(list, zip(self._x.read(part[:, 0]), self._y.read(part[:, 1]))))

        self._add(kind, label, len(places), read)


def _pick(listed, chosen):
    return listed[chosen] if isinstance(chosen, slice) else [listed[n] for n in chosen]


def _labels_at(axis, places):
    return axis.read(_floats(places), True) if len(places) else []


def _are_bins(start, width):
    """Whether bars stand side by side without a gap."""
    if len(start) < 2:
        return False
    gaps = abs(start[:-1] + width[:-1] - start[1:])
    return bool((gaps <= 1e-6 * abs(width[:-1])).all())


def _is_mark(places):
    """A short straight line along an axis, as bars of errors and whiskers are."""
    return len(places) <= 6 and bool((places == places[0]).all(axis=0).any())


class _Box:
    """A box with its whiskers: `five` are the ends of the whiskers and, between them, quartiles and median."""

    def __init__(self, upright, centre, five, outliers, parts):
        self.upright, self.centre, self.five, self.outliers, self.parts = upright, centre, five, outliers, parts


class _BoxParts:
    """Lines that may be parts of boxes: matplotlib keeps no record of which belong to one, so their places have to tell."""

    def __init__(self, lines):
        import numpy

        spans = [(line, data) for line, data in lines if len(data) == 2]
        self._lines = [line for line, _ in spans]
        data = numpy.array([_floats(data) for _, data in spans]).reshape(-1, 2, 2)
        self._low, self._high = data.min(axis=1), data.max(axis=1)
        self._markers = [(line, _floats(data)) for line, data in lines if line.get_linestyle() in _NO_LINE and len(data)]

    def box_of(self, outline):
        """The box of an outline, None if no median is in it."""
        outline = _floats(outline)
        for across in (0, 1):
            box = self._box_along(outline.min(axis=0), outline.max(axis=0), across, 1 - across)
            if box is not None:
                return box
        return None

    def _box_along(self, low, high, across, along):
        near = 1e-6 * max(high[across] - low[across], 1e-12)
        centre = (low[across] + high[across]) / 2
        first, last = self._low, self._high
        medians = (first[:, along] == last[:, along]) & (first[:, along] >= low[along]) & (first[:, along] <= high[along])
        medians &= (abs(first[:, across] - low[across]) <= near) & (abs(last[:, across] - high[across]) <= near)
        if not medians.any():
            return None
        whiskers = (abs(first[:, across] - centre) <= near) & (abs(last[:, across] - centre) <= near) & ~medians
        whiskers &= (last[:, along] == low[along]) | (first[:, along] == high[along])
        own = [(line, data) for line, data in self._markers if abs(data[:, across] - centre).max() <= near]
        median = self._low[medians][0, along]
        least, most = first[whiskers][:, along].min(initial=low[along]), last[whiskers][:, along].max(initial=high[along])
        return _Box(
            across == 0, centre, [least, low[along], median, high[along], most],
            [value for _, data in own for value in data[:, along].tolist()],
            [line for n, line in enumerate(self._lines) if medians[n] or whiskers[n]] + [line for line, _ in own],
        )  # fmt: skip
