"""Servers that misbehave in ways that a test states."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional
from urllib.parse import urlsplit


@dataclass
class Asked:
    """A request that came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What is sent back. `drop` breaks the connection after the body, which then is not told to be over."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False
    pieces: Optional[Sequence[bytes]] = None
    """The body in these pieces, each sent by itself."""

    @classmethod
    def of(cls, data: Any, status: int = 200, **headers: str) -> Answer:
        return cls(status, json.dumps(data).encode(), {"Content-Type": "application/json", **headers})

    @classmethod
    def refusal(cls, status: int, code: str, message: str = "no", **headers: str) -> Answer:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        error = {"code": code, "message": message, "field": None, "request_id": "req_1"}
        return cls.of({"error": error}, status, **names)

    @classmethod
    def events(cls, *events: Mapping[str, Any], drop: bool = False, tail: bytes = b"") -> Answer:
        text = "".join(f"id: {event['seq']}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        headers = {"Content-Type": "text/event-stream", "X-Execution-Id": "exe_1"}
        return cls(200, text.encode() + tail, headers, drop)


NOTHING = Answer(status=0, drop=True)
"""The connection breaks before anything is said."""


class _Listener:
    """Takes connections one after the other, each in a thread."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._threads: list[threading.Thread] = []

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._quietly, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _quietly(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(30)
            try:
                self.serve(connection)
            except OSError:
                pass

    def serve(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def close(self) -> None:
        # Closing alone does not wake who waits in accept().
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(30)
        for thread in self._threads:
            thread.join(30)


class FaultyServer(_Listener):
    """Gives the answers it was told, one for each request, each on a connection of its own; the last one again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Answer] = []
        self.asked: list[Asked] = []
        self._next = 0
        self._lock = threading.Lock()

    def __enter__(self) -> FaultyServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def will(self, *answers: Answer) -> str:
        self.answers = list(answers)
        return self.url

    def serve(self, connection: socket.socket) -> None:
        asked = _read_request(connection)
        if asked is None:
            return
        with self._lock:
            self.asked.append(asked)
            answer = self.answers[min(self._next, len(self.answers) - 1)]
            self._next += 1
        if answer.status:
            head = [f"HTTP/1.1 {answer.status} X", "Connection: close"]
            head += [f"{name}: {value}" for name, value in answer.headers.items()]
            body = b"".join(answer.pieces) if answer.pieces is not None else answer.body
            if "Content-Length" not in answer.headers:
                # One byte more than there is: the client sees that something is missing.
                head.append(f"Content-Length: {len(body) + answer.drop}")
            connection.sendall("\r\n".join([*head, "", ""]).encode())
            for piece in answer.pieces if answer.pieces is not None else [body]:
                connection.sendall(piece)
        if answer.drop and not answer.status:
            _reset(connection)


class CuttingProxy(_Listener):
    """Passes requests on to a real server, and cuts the first answers after so many bytes each; later ones are whole."""

    def __init__(self, target: str, cuts: Sequence[int]) -> None:
        super().__init__()
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._cuts = list(cuts)
        self._lock = threading.Lock()
        self.connections = 0

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def serve(self, connection: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            left = self._cuts.pop(0) if self._cuts else None
        with socket.create_connection(self._target, 30) as server:
            pump = threading.Thread(target=_pump, args=(connection, server, None), daemon=True)
            pump.start()
            _pump(server, connection, left)
            for end in (connection, server):
                _shut(end)
            pump.join(30)


def _pump(source: socket.socket, target: socket.socket, left: Optional[int]) -> None:
    try:
        while chunk := source.recv(4096):
            if left is not None:
                chunk, left = chunk[:left], left - len(chunk)
            target.sendall(chunk)
            if left is not None and left <= 0:
                break
    except OSError:
        pass
    _shut(target)


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _read_request(connection: socket.socket) -> Optional[Asked]:
    received = b""
    while b"\r\n\r\n" not in received:
        chunk = connection.recv(65536)
        if not chunk:
            return None
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _read_chunks(connection, body)
    else:
        body = _read_until(connection, body, int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ", 2)
    return Asked(method, path, headers, body)


def _read_until(connection: socket.socket, received: bytes, length: int) -> bytes:
    """At least `length` bytes, `received` being the first of them."""
    while len(received) < length:
        chunk = connection.recv(65536)
        if not chunk:
            raise ConnectionError(f"the client left after {len(received)} of {length} bytes")
        received += chunk
    return received


def _read_chunks(connection: socket.socket, received: bytes) -> bytes:
    """The body of a chunked request. Its end is found by the sizes: what a chunk holds may look like the end."""
    body = b""
    while True:
        while b"\r\n" not in received:
            received = _read_until(connection, received, len(received) + 1)
        size, _, received = received.partition(b"\r\n")
        length = int(size, 16)
        received = _read_until(connection, received, length + 2)
        body, received = body + received[:length], received[length + 2 :]
        if not length:
            return body
