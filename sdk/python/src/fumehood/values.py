"""From the tagged JSON of `result` back to Python values (docs/values.md of the server has the table)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, Callable, Optional
from uuid import UUID


@dataclass(frozen=True)
class Opaque:
    """A value that stayed in the sandbox: `kind` is its `$type`, `fields` what was told about it."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        about = self.fields.get("repr") or self.fields.get("class") or self.fields.get("reason")
        return str(about) if about else f"<{self.kind}>"


def decode(value: Any) -> Any:
    """The Python value that `value`, as it came from the server, stands for.

    Arrays become nested lists. What has no counterpart here (tables, arbitrary objects, what was cut) becomes `Opaque`. Never raises:
    the text was written by code that nobody has reviewed.
    """
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("$type")
    if not isinstance(kind, str):
        return {name: decode(item) for name, item in value.items()}
    fields = {name: item for name, item in value.items() if name != "$type"}
    decoder = _DECODERS.get(kind)
    if decoder is not None:
        try:
            return decoder(fields)
        except (ValueError, TypeError, KeyError, ArithmeticError):
            pass
    return Opaque(kind, fields)


def _int(fields: dict[str, Any]) -> int:
    text = fields["value"]
    # Python refuses to read more decimal digits than this; the server writes hexadecimal there.
    return int(text, 16) if re.match(r"-?0x", text) else int(text)


def _bytes(fields: dict[str, Any]) -> Any:
    content = base64.b64decode(fields["base64"], validate=True)
    return Opaque("bytes", {**fields, "content": content}) if fields.get("truncated") else content


def _array(kind: str) -> Callable[[dict[str, Any]], Any]:
    def decoded(fields: dict[str, Any]) -> Any:
        return Opaque(kind, fields) if fields.get("truncated") else decode(fields["data"])

    return decoded


def _moment(fields: dict[str, Any]) -> Optional[datetime]:
    text = fields["value"]
    if text == "NaT":
        return None
    # Python has microseconds at most, and before 3.11 only three or six digits of them.
    text = re.sub(r"\.(\d+)", lambda digits: "." + digits[1][:6].ljust(6, "0"), text)
    return datetime.fromisoformat(text)


def _interval(fields: dict[str, Any]) -> Optional[timedelta]:
    return None if fields["value"] == "NaT" else timedelta(seconds=fields["seconds"])


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, set):
        return frozenset(value)
    return value


def _items(fields: dict[str, Any]) -> dict[Any, Any]:
    return {_hashable(decode(key)): decode(item) for key, item in fields["items"]}


_DECODERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "float": lambda fields: float(fields["value"]),
    "int": _int,
    "complex": lambda fields: complex(decode(fields["real"]), decode(fields["imag"])),
    "decimal": lambda fields: Decimal(fields["value"]),
    "fraction": lambda fields: Fraction(fields["value"]),
    "bytes": _bytes,
    "datetime": _moment,
    "date": lambda fields: date.fromisoformat(fields["value"]),
    "time": lambda fields: time.fromisoformat(fields["value"]),
    "timedelta": _interval,
    "uuid": lambda fields: UUID(fields["value"]),
    "path": lambda fields: PurePosixPath(fields["value"]),
    "set": lambda fields: {_hashable(item) for item in decode(fields["value"])},
    "dict": _items,
    "ndarray": _array("ndarray"),
    "index": _array("index"),
}
