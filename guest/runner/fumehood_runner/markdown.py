"""Tables as Markdown, for readers that are language models or chat windows: tables as GitHub writes them, bounded.

Cells are data and stay data: nothing in them becomes HTML, emphasis, code, a formula, a picture, a link with a text of its
own, or another cell. A line below the table says what is left out.
"""

import re

from . import text

MAX_COLUMNS = 50
MAX_CELL = 300
MAX_CHARACTERS = 256_000
"""Of all rows together."""
_LONG_FLOAT = 12
_INTEGRAL_FLOAT = 2.0**53

# A lone underscore within a word means nothing to Markdown, and names of columns are full of them.
_SPECIAL = re.compile(r"[\\`*\[\]~$|]|_(?!(?<=[^\W_]_)[^\W_])")
_LINE_END = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\0-\x1f\x7f-\x9f]")
_ENTITY = re.compile(r"&(?=#?[0-9A-Za-z]{1,40};)")


def table(shape, header, rows, missing="NaN", limit=MAX_CHARACTERS, hidden=0):
    """Markdown of a table.

    `shape` is that of the whole table, `header` text, `rows` are lists of previewed cells (see `tables.cell`), `missing` is
    the library's word for a missing value, `limit` the number of characters, `hidden` the number of columns left out.
    """
    lines, numeric, left = [], [True] * len(header), min(limit, MAX_CHARACTERS)
    for row in rows:
        line = _line(_shown(value, missing) for value in row)
        left -= len(line)
        if left < 0:
            break
        lines.append(line)
        numeric = [n and _is_numeric(value) for n, value in zip(numeric, row)]
    note = _note(shape, len(lines), hidden)
    rules = ("---:" if n and lines else "---" for n in numeric)
    lines = [_line(escape(text.cut(name, MAX_CELL)) for name in header), _line(rules), *lines] if shape[1] else []
    return "\n\n".join(filter(None, ("\n".join(lines), note)))


def escape(value):
    """Text as the content of one cell."""
    value = _LINE_END.sub("\n", value).replace("\t", " ").strip()
    value = _SPECIAL.sub(r"\\\g<0>", _ENTITY.sub("&amp;", value))
    # The line break last: it is the one tag that is ours.
    return _CONTROL.sub("\ufffd", value.replace("<", "&lt;").replace("\n", "<br>"))


def _line(cells):
    return f"| {' | '.join(cells)} |"


def _note(shape, rows, hidden):
    """One line on what is not shown, None if all is."""
    whole = f"{_count(shape[0], 'row')}, {_count(shape[1], 'column')}"
    left_out = []
    if shape[0] > rows:
        left_out.append(_count(shape[0] - rows, "more row" if rows else "row"))
    if hidden:
        left_out.append(_count(hidden, "more column"))
    if left_out and shape[1]:
        return f"Not shown: {' and '.join(left_out)}. The whole table: {whole}."
    return None if shape[0] and shape[1] else f"An empty table: {whole}."


def _count(n, noun):
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _shown(value, missing):
    if value is None:
        return escape(missing)
    if type(value) is str:
        return escape(value)
    if type(value) is float:
        return _float(value)
    if type(value) is int:
        return str(value)
    return escape(text.bounded_repr(value, MAX_CELL))


def _float(value):
    exact = repr(value)
    if len(exact) <= _LONG_FLOAT:
        return exact
    # Enough to tell values apart, without the noise of their last digits; the preview has all of them.
    return f"{value:.1f}" if value.is_integer() and abs(value) < _INTEGRAL_FLOAT else f"{value:.10g}"


def _is_numeric(value):
    return value is None or type(value) in (int, float) or value in ("inf", "-inf")
