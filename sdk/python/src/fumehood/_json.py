"""Reading JSON objects of another version of the server: what is unknown is ignored, what is missing or odd gets a default."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Optional

Json = dict[str, Any]


def text(data: Json, name: str, absent: str = "") -> str:
    value = data.get(name)
    return value if isinstance(value, str) else absent


def maybe_text(data: Json, name: str) -> Optional[str]:
    value = data.get(name)
    return value if isinstance(value, str) else None


def whole(data: Json, name: str, absent: int = 0) -> int:
    value = data.get(name)
    return int(value) if isinstance(value, (int, float)) else absent


def maybe_whole(data: Json, name: str) -> Optional[int]:
    value = data.get(name)
    return int(value) if isinstance(value, (int, float)) else None


def number(data: Json, name: str) -> float:
    value = data.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0


def maybe_number(data: Json, name: str) -> Optional[float]:
    value = data.get(name)
    return float(value) if isinstance(value, (int, float)) else None


def flag(data: Json, name: str) -> bool:
    return data.get(name) is True


def mapping(data: Json, name: str) -> Json:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def maybe_mapping(data: Json, name: str) -> Optional[Json]:
    value = data.get(name)
    return value if isinstance(value, dict) else None


def items(data: Json, name: str) -> list[Any]:
    value = data.get(name)
    return value if isinstance(value, list) else []


def objects(data: Json, name: str) -> list[Json]:
    return [item for item in items(data, name) if isinstance(item, dict)]


def texts(data: Json, name: str) -> list[str]:
    return [str(item) for item in items(data, name)]


def moment(data: Json, name: str) -> Optional[datetime]:
    """A time in RFC 3339, UTC, with or without fractions of a second."""
    value = data.get(name)
    if not isinstance(value, str):
        return None
    whole_seconds, _, rest = value.removesuffix("Z").partition(".")
    try:
        at = datetime.fromisoformat(whole_seconds)
        micros = int(rest[:6].ljust(6, "0")) if rest else 0
    except ValueError:
        return None
    return at.replace(microsecond=micros, tzinfo=timezone.utc)
