"""`dataframe`: what a client needs to show a table, and tables as Markdown, without converting all of them.

Only the first rows and columns are ever touched. Columns keep their original names as text in `columns`, duplicates
included; where names are keys (`dtypes`, `preview`) a repeated name gets a suffix: "v", "v.1". A column index of several
levels is joined as Python writes the tuple: "('x', 'y')". In the preview missing values are null, infinities are the
strings "inf" and "-inf", timestamps ISO 8601 with their offset, timedeltas `str(td)`, nested values JSON if they are
small, anything else text of at most 1,000 characters.
"""

import math

from . import markdown, text
from .values import MAX_SAFE_INT, first, is_a, loaded

MAX_COLUMNS = 200
MAX_ROWS = 500
MAX_CELL = 1_000
_DEEP_MEMORY_ROWS = 100_000
_NESTED_NODES = 200


def describe(obj, var_name, rows, max_bytes, warn, as_markdown=False):
    """The `dataframe` object for a table, None for anything else. Never raises; `warn(code, message)` tells of cuts."""
    try:
        view = _view_of(obj)
        if view is None:
            return None
        described = view.describe(var_name, max(0, min(rows, MAX_ROWS)), max_bytes, warn)
    except KeyboardInterrupt:
        raise
    except BaseException as e:
        warn("dataframe_incomplete", f"the table could not be read: {text.class_name(e)}: {text.message_of(e, 200)}")
        described = _minimal(obj, var_name)
    if as_markdown:
        described["markdown"] = to_markdown(obj, rows, max_bytes)
    return described


def to_markdown(obj, rows, max_characters=markdown.MAX_CHARACTERS):
    """The first rows of a table as Markdown, None for anything else and for a table that cannot be read. Never raises."""
    try:
        view = _view_of(obj)
        return None if view is None else view.markdown(max(0, min(rows, MAX_ROWS)), max_characters)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def cell(value, depth=0, nodes=None, limit=MAX_CELL):
    """One value of a preview as JSON, text and what becomes text cut at `limit` characters."""
    if value is None or value is True or value is False:
        return value
    if text.is_kind(value, str):
        return text.cut(str.__str__(value), limit)
    if text.is_kind(value, float):
        value = float.__pos__(value)
        return value if math.isfinite(value) else None if value != value else "inf" if value > 0 else "-inf"
    if text.is_kind(value, int):
        value = int.__pos__(value)
        return value if -MAX_SAFE_INT <= value <= MAX_SAFE_INT else text.bounded_repr(value, limit)
    if value is loaded("pandas", "NA") or value is loaded("pandas", "NaT"):
        return None
    if is_a(value, "numpy", "generic"):
        if is_a(value, "numpy", "datetime64", "timedelta64"):
            shown = str(value)
            return None if shown == "NaT" else shown
        plain = value.item()
        return cell(float(value) if is_a(plain, "numpy", "generic") else plain, depth, limit=limit)
    if is_a(value, "datetime", "date", "time"):  # a datetime is a date
        return value.isoformat()
    if is_a(value, "datetime", "timedelta"):
        return str(value)
    if is_a(value, "numpy", "ma") or type(value).__name__ == "MaskedConstant":
        return None
    if text.is_kind(value, (list, tuple, dict)):
        nested = _nested(value, depth, nodes if nodes is not None else [_NESTED_NODES])
        if nested is not None:
            return nested
    elif is_a(value, "decimal", "Decimal") or is_a(value, "uuid", "UUID") or is_a(value, "pathlib", "PurePath"):
        return text.cut(str(value), limit)
    return text.bounded_repr(value, limit)


def human_size(n):
    """"1.2 MB" for a number of bytes, in steps of 1024."""
    size = float(n)
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            return f"{int(size)} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def unique_names(labels):
    """Labels made usable as keys: repeated ones get a suffix that no other column has."""
    taken, out = set(labels), []
    used = set()
    for label in labels:
        name, n = label, 0
        while name in used or (n and name in taken):
            n += 1
            name = f"{label}.{n}"
        used.add(name)
        out.append(name)
    return out


def _nested(value, depth, nodes):
    """A small container as JSON, None if it is not small or not JSON."""
    size = len(value)
    nodes[0] -= size
    if nodes[0] < 0 or depth > 4:
        return None
    if isinstance(value, dict):
        if not all(type(k) is str for k in dict.keys(value)):
            return None
        return {text.cut(k, 200): cell(v, depth + 1, nodes) for k, v in dict.items(value)}
    return [cell(v, depth + 1, nodes) for v in value]


def _label(name):
    try:
        return text.cut(str(name), 300)
    except Exception:
        return text.bounded_repr(name, 300)


def _cells(values, limit=MAX_CELL):
    out = []
    for value in values:
        try:
            out.append(cell(value, limit=limit))
        except Exception:
            out.append(text.bounded_repr(value, limit))
    return out


def _weight(value):
    if text.is_kind(value, str):
        return len(value) + 2
    if isinstance(value, dict):
        return sum(len(k) + 4 + _weight(v) for k, v in value.items())
    if isinstance(value, list):
        return 2 + sum(map(_weight, value))
    return 8


def _minimal(obj, var_name):
    try:
        shape = [int(n) for n in obj.shape][:2]
        shape = (shape + [1])[:2] if shape else [0, 0]
    except Exception:
        shape = [0, 0]
    return {
        "var_name": var_name, "kind": text.class_name(obj, True), "shape": shape, "columns": [], "dtypes": {}, "index": None,
        "preview": [], "memory_usage": None, "memory_bytes": None, "truncated_columns": False,
    }  # fmt: skip


def _view_of(obj):
    if is_a(obj, "pandas", "DataFrame"):
        return _PandasFrame(obj)
    if is_a(obj, "pandas", "Series"):
        return _PandasSeries(obj)
    if is_a(obj, "pandas.io.formats.style", "Styler"):
        return _PandasStyler(obj)
    if is_a(obj, "polars", "DataFrame"):
        return _PolarsFrame(obj)
    if is_a(obj, "polars", "Series"):
        return _PolarsSeries(obj)
    if is_a(obj, "polars", "LazyFrame"):
        return _PolarsLazyFrame(obj)
    if is_a(obj, "numpy", "ndarray") and obj.ndim in (1, 2):
        return _Array(obj)
    return None


class _Table:
    """What every kind of table answers; `kind` is its public name."""

    kind = ""
    lazy = False
    missing = "NaN"
    """What the library shows for a missing value."""

    def describe(self, var_name, rows, max_bytes, warn):
        shape, labels, dtypes = self.shape(), self.labels(), self.dtypes()
        keys = unique_names(labels)
        columns = [_cells(values) for values in self.columns(rows)]
        preview = [dict(zip(keys, row)) for row in zip(*columns)]
        preview, cut = _within(preview, max_bytes)
        if cut:
            warn("preview_truncated", f"the preview holds {len(preview)} rows: more would exceed {human_size(max_bytes)}")
        size = self.memory()
        out = {
            "var_name": var_name,
            "kind": self.kind,
            "shape": shape,
            "columns": labels,
            "dtypes": dict(zip(keys, dtypes)),
            "index": self.index(len(preview)),
            "preview": preview,
            "memory_usage": human_size(size),
            "memory_bytes": size,
            "truncated_columns": shape[1] > len(labels),
        }
        if self.lazy:
            out["lazy"] = True
            warn("lazy_frame", "a LazyFrame has no rows until .collect() is called")
        return out

    def index(self, rows):
        return {"names": [None], "dtype": "int64", "levels": 1, "preview": list(range(rows))}

    def markdown(self, rows, max_characters):
        shape, header = self.shape(), self.header()[:markdown.MAX_COLUMNS]
        names, levels = self.row_labels(rows)
        columns = self.columns(rows, len(header))
        cells = [_cells(values, markdown.MAX_CELL) for values in (*levels, *columns)]
        hidden = shape[1] - len(header)
        return markdown.table(shape, names + header, zip(*cells), self.missing, max_characters, hidden)

    def header(self):
        """Names of columns, as they are to be read."""
        return self.labels()

    def row_labels(self, rows):
        """(names, values) of the levels that label the first rows."""
        return [], []


def _within(preview, max_bytes):
    left = max_bytes
    for n, row in enumerate(preview):
        left -= _weight(row)
        if left < 0:
            return preview[:n], True
    return preview, False


class _PandasFrame(_Table):
    kind = "pandas.DataFrame"

    def __init__(self, frame):
        self._frame = frame

    def shape(self):
        return [int(n) for n in self._frame.shape]

    def labels(self):
        return [_label(c) for c in self._frame.columns[:MAX_COLUMNS]]

    def dtypes(self):
        return [str(d) for d in self._frame.dtypes.iloc[:MAX_COLUMNS]]

    def columns(self, rows, most=MAX_COLUMNS):
        head = self._frame.iloc[:rows, :most]
        # By position: a repeated name would select several columns.
        return [list(head.iloc[:, n]) for n in range(head.shape[1])]

    def index(self, rows):
        return _pandas_index(self._frame.index, rows)

    def header(self):
        return [_levels_joined(c) for c in self._frame.columns[:markdown.MAX_COLUMNS]]

    def row_labels(self, rows):
        return _pandas_row_labels(self._frame.index, rows, self._frame.columns.names)

    def memory(self):
        deep = len(self._frame) <= _DEEP_MEMORY_ROWS
        return int(self._frame.memory_usage(index=True, deep=deep).sum())


class _PandasSeries(_Table):
    kind = "pandas.Series"

    def __init__(self, series):
        self._series = series

    def shape(self):
        return [len(self._series), 1]

    def labels(self):
        return ["0" if self._series.name is None else _label(self._series.name)]

    def dtypes(self):
        return [str(self._series.dtype)]

    def columns(self, rows, most=1):
        return [list(self._series.iloc[:rows])]

    def index(self, rows):
        return _pandas_index(self._series.index, rows)

    def row_labels(self, rows):
        return _pandas_row_labels(self._series.index, rows)

    def memory(self):
        return int(self._series.memory_usage(index=True, deep=len(self._series) <= _DEEP_MEMORY_ROWS))


def _pandas_index(index, rows):
    return {
        "names": [None if n is None else _label(n) for n in index.names],
        "dtype": str(index.dtype),
        "levels": int(index.nlevels),
        "preview": _cells(index[:rows]),
    }


def _pandas_row_labels(index, rows, column_names=()):
    names = ["" if n is None else _label(n) for n in index.names]
    if not any(names):
        # Where pandas shows them too: above the labels of the rows.
        names[0] = " / ".join(_label(n) for n in column_names if n is not None)
    head = index[:rows]
    return names, [list(head.get_level_values(level)) for level in range(index.nlevels)]


def _levels_joined(name):
    """The name of a column of one or several levels, for a reader."""
    if not text.is_kind(name, tuple):
        return _label(name)
    return " / ".join(part for part in map(_label, tuple.__iter__(name)) if part)


class _PandasStyler(_PandasFrame):
    """A table with instructions for its looks, of which Markdown can follow two: hidden parts and formatted values."""

    kind = "pandas.Styler"

    def __init__(self, styler):
        super().__init__(styler.data)
        self._styler = styler

    def markdown(self, rows, max_characters):
        # Attributes of no public interface: without them it is the plain table.
        hidden = set(getattr(self._styler, "hidden_columns", ()))
        shown = [n for n in range(min(self._frame.shape[1], MAX_COLUMNS)) if n not in hidden][:markdown.MAX_COLUMNS]
        formats = getattr(self._styler, "_display_funcs", None) or {}
        head = self._frame.iloc[:rows, shown]
        cells = [
            [self._formatted(formats.get((row, place)), value) for row, value in enumerate(head.iloc[:, n])]
            for n, place in enumerate(shown)
        ]
        names, levels = self.row_labels(rows)
        flags = getattr(self._styler, "hide_index_", None) or ()
        kept = [n for n in range(len(names)) if not (n < len(flags) and flags[n])]
        cells = [*(_cells(levels[n], markdown.MAX_CELL) for n in kept), *cells]
        header = [*(names[n] for n in kept), *(_levels_joined(c) for c in head.columns)]
        shape = [self._frame.shape[0], self._frame.shape[1] - len(hidden)]
        return markdown.table(shape, header, zip(*cells), self.missing, max_characters, shape[1] - len(shown))

    def _formatted(self, function, value):
        plain = cell(value, limit=markdown.MAX_CELL)
        return plain if function is None else text.cut(str(function(value)), markdown.MAX_CELL)


class _PolarsFrame(_Table):
    kind = "polars.DataFrame"
    missing = "null"

    def __init__(self, frame):
        self._frame = frame

    def shape(self):
        return [int(n) for n in self._frame.shape]

    def labels(self):
        return [_label(c) for c in self._frame.columns[:MAX_COLUMNS]]

    def dtypes(self):
        return [str(d) for d in self._frame.dtypes[:MAX_COLUMNS]]

    def columns(self, rows, most=MAX_COLUMNS):
        head = self._frame.head(rows)
        return [list(head[:, n]) for n in range(min(head.width, most))]

    def memory(self):
        return int(self._frame.estimated_size())


class _PolarsSeries(_PolarsFrame):
    kind = "polars.Series"

    def __init__(self, series):
        super().__init__(series.to_frame())


class _PolarsLazyFrame(_Table):
    """Only the schema: collecting may run any amount of work."""

    kind = "polars.LazyFrame"
    lazy = True

    def __init__(self, frame):
        self._schema = dict(frame.collect_schema())

    def shape(self):
        return [0, len(self._schema)]

    def labels(self):
        return [_label(c) for c in first(self._schema, MAX_COLUMNS)]

    def dtypes(self):
        return [str(d) for d in first(self._schema.values(), MAX_COLUMNS)]

    def columns(self, rows, most=MAX_COLUMNS):
        return []

    def markdown(self, rows, max_characters):
        columns = list(zip(self.header()[:markdown.MAX_COLUMNS], self.dtypes()))
        return "A LazyFrame, which has no rows until `.collect()` is called. Its columns:\n\n" + markdown.table(
            [len(self._schema), 2], ["column", "type"], columns, limit=max_characters
        )

    def memory(self):
        return 0


class _Array(_Table):
    kind = "numpy.ndarray"

    def __init__(self, array):
        self._array = array
        self._fields = list(array.dtype.names or ()) if array.ndim == 1 else []

    def shape(self):
        width = len(self._fields) or (self._array.shape[1] if self._array.ndim == 2 else 1)
        return [int(self._array.shape[0]), int(width)]

    def labels(self):
        return (self._fields or [str(n) for n in range(min(self.shape()[1], MAX_COLUMNS))])[:MAX_COLUMNS]

    def dtypes(self):
        if self._fields:
            return [str(self._array.dtype[f]) for f in self.labels()]
        return [str(self._array.dtype)] * len(self.labels())

    def columns(self, rows, most=MAX_COLUMNS):
        head = self._array[:rows]
        if self._fields:
            return [list(head[f]) for f in self.labels()[:most]]
        if head.ndim == 1:
            return [list(head)]
        return [list(head[:, n]) for n in range(min(head.shape[1], most))]

    def memory(self):
        return int(self._array.nbytes)
