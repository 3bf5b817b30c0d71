"""Tables as the server describes them: shape, columns and the first rows."""

from __future__ import annotations

import html
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from . import _json
from ._json import Json
from .errors import MissingDependency

if TYPE_CHECKING:
    import pandas


class PartialTable(UserWarning):
    """A table was made of a preview that does not hold all of it."""


@dataclass(repr=False)
class Table:
    """A table in the sandbox: what it looks like, and its first rows (`preview_rows` of them)."""

    var_name: str
    kind: str
    shape: tuple[int, int]
    columns: list[str]
    dtypes: dict[str, str]
    """By name; a repeated name has a suffix, as in `preview`."""
    preview: list[Json]
    index: Json = field(default_factory=dict)
    memory_usage: str = ""
    memory_bytes: Optional[int] = None
    truncated_columns: bool = False
    lazy: bool = False
    markdown: Optional[str] = None
    """Made by the server, when the execution was asked for `format="markdown"`."""

    @classmethod
    def from_json(cls, data: Json) -> Table:
        shape = [int(size) for size in _json.items(data, "shape") if isinstance(size, int)]
        rows, columns = (*shape, 0, 0)[:2]
        return cls(
            var_name=_json.text(data, "var_name"),
            kind=_json.text(data, "kind"),
            shape=(rows, columns),
            columns=_json.texts(data, "columns"),
            dtypes={str(name): str(dtype) for name, dtype in _json.mapping(data, "dtypes").items()},
            preview=_json.objects(data, "preview"),
            index=_json.mapping(data, "index"),
            memory_usage=_json.text(data, "memory_usage"),
            memory_bytes=_json.maybe_whole(data, "memory_bytes"),
            truncated_columns=_json.flag(data, "truncated_columns"),
            lazy=_json.flag(data, "lazy"),
            markdown=_json.maybe_text(data, "markdown"),
        )

    @property
    def complete(self) -> bool:
        """Whether the preview is the whole table."""
        return len(self.preview) >= self.shape[0] and not self.truncated_columns and not self.lazy

    @property
    def missing(self) -> str:
        """What the preview lacks, in words; empty when it is complete."""
        if self.lazy:
            return "the table is lazy, it has no rows until .collect()"
        lacks = []
        if len(self.preview) < self.shape[0]:
            lacks.append(f"the first {len(self.preview)} of {self.shape[0]} rows")
        if self.truncated_columns:
            lacks.append(f"{len(self.columns)} of {self.shape[1]} columns")
        return "only " + " and ".join(lacks) if lacks else ""

    def to_markdown(self, rows: Optional[int] = None) -> str:
        """The preview (at most `rows` of it) as a Markdown table; the server's own where there is one and all is wanted."""
        if self.markdown is not None and rows is None:
            return self.markdown
        return markdown_table(list(self.dtypes), self.preview[:rows], self.columns)

    def to_pandas(self, *, complete: bool = False) -> pandas.DataFrame:
        """The preview as a pandas.DataFrame, with the types and row labels of the original as far as they can be told.

        Warns (`PartialTable`) when that is not the whole table; with `complete=True` that is a `ValueError`. To get all of a large table,
        have the code write a file and `collect` it.
        """
        lacks = self.missing
        if lacks:
            message = (
                f"{self.var_name or 'table'}: {lacks}; raise preview_rows (500 at most), or have the code write a file"
            )
            if complete:
                raise ValueError(message)
            warnings.warn(message, PartialTable, stacklevel=2)
        try:
            import pandas
        except ImportError as error:
            raise MissingDependency("to_pandas() needs pandas: pip install 'fumehood[pandas]'") from error
        names = list(self.dtypes)
        series = [_column([row.get(name) for row in self.preview], self.dtypes[name]) for name in names]
        frame = pandas.DataFrame(dict(enumerate(series)), index=range(len(self.preview)))
        frame.columns = pandas.Index(self.columns if len(self.columns) == len(names) else names)
        labels = _json.items(self.index, "preview")
        if self.index.get("levels") == 1 and len(labels) == len(frame):
            name = next(iter(_json.items(self.index, "names")), None)
            frame.index = pandas.Index(_column(labels, str(self.index.get("dtype"))), name=name)
        frame.attrs["fumehood"] = {"var_name": self.var_name, "shape": self.shape, "complete": not lacks}
        return frame

    def __repr__(self) -> str:
        return f"<Table {self.var_name}: {self.shape[0]} rows x {self.shape[1]} columns{', ' + self.missing if self.missing else ''}>"

    def _repr_html_(self) -> str:
        names = list(self.dtypes)
        labels = _json.items(self.index, "preview") if self.index.get("levels") == 1 else []
        head = "".join(
            f"<th>{html.escape(name)}</th>" for name in (self.columns if len(self.columns) == len(names) else names)
        )
        rows = []
        for position, row in enumerate(self.preview):
            label = labels[position] if position < len(labels) else position
            cells = "".join(f"<td>{html.escape(shown(row.get(name)))}</td>" for name in names)
            rows.append(f"<tr><th>{html.escape(shown(label))}</th>{cells}</tr>")
        about = f"{self.shape[0]} rows × {self.shape[1]} columns" + (f"; {self.missing}" if self.missing else "")
        table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        return f"{table}<p>{html.escape(about)}</p>"


def shown(value: Any) -> str:
    """A cell as people read it."""
    return "" if value is None else str(value)


def markdown_table(names: Sequence[str], rows: Sequence[Json], titles: Optional[Sequence[str]] = None) -> str:
    """A Markdown table of `rows`, the columns `names` of them; what would break the table apart is escaped. Empty without columns."""
    if not names:
        return ""

    def line(cells: Sequence[str]) -> str:
        return (
            "| "
            + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ") for cell in cells)
            + " |"
        )

    heads = titles if titles is not None and len(titles) == len(names) else names
    body = [line([shown(row.get(name)) for name in names]) for row in rows]
    return "\n".join([line([str(head) for head in heads]), line(["---"] * len(names)), *body])


def _column(values: list[Any], dtype: str) -> Any:
    """`values` as a pandas array of `dtype`; as they are where the name of the type says nothing here or they do not fit."""
    import pandas

    try:
        if dtype.startswith(("datetime64", "Datetime")):
            # Offsets may change within a column (summer time), which only UTC holds.
            zoned = "," in dtype
            stamps = pandas.to_datetime(pandas.Series(values, dtype="object"), utc=zoned, format="ISO8601")
            zone = dtype.rpartition(",")[2].strip(" ]") if dtype.startswith("datetime64") and zoned else ""
            return stamps.dt.tz_convert(zone).array if zone else stamps.array
        if dtype.startswith(("timedelta64", "Duration")):
            return pandas.Series(pandas.to_timedelta(values)).array
        if dtype in ("str", "String", "category", "bool", "object") or dtype.lower().startswith(
            ("int", "uint", "float", "string")
        ):
            return pandas.Series(values, dtype=_POLARS.get(dtype, dtype)).array
    except (ValueError, TypeError, OverflowError, KeyError):
        pass
    return pandas.Series(values, dtype="object").array


# Names that polars has for what pandas calls otherwise; both know `Int64`, which in pandas holds missing values.
_POLARS = {"String": "object", "object": "object"}
