"""Server-sent events, from bytes that arrive in any pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ._json import Json
from .errors import ProtocolError


class EventReader:
    """Takes the bytes of a stream and gives the objects of its events, each once it is whole."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._searched = 0
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Json]:
        self._pending += chunk
        while True:
            end = self._pending.find(b"\n", self._searched)
            if end < 0:
                self._searched = len(self._pending)
                return
            line = bytes(self._pending[:end]).rstrip(b"\r")
            del self._pending[: end + 1]
            self._searched = 0
            # `id` and `event` repeat what the object says; lines that begin with a colon keep the connection alive.
            if line.startswith(b"data:"):
                self._data.append(line[5:])
            elif not line and self._data:
                data, self._data = b"\n".join(self._data), []
                yield _event(data)


def _event(data: bytes) -> Json:
    try:
        event = json.loads(data)
        if isinstance(event["seq"], int) and isinstance(event["type"], str) and isinstance(event["data"], dict):
            assert isinstance(event, dict)
            return event
    except (ValueError, KeyError, TypeError):
        pass
    raise ProtocolError(f"the stream has something that is no event: {data[:200].decode('utf-8', 'replace').strip()!r}")
