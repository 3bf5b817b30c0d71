"""Local ends of transfers: what is uploaded, and where downloads go. Nothing is read or kept whole that need not be."""

from __future__ import annotations

import hashlib
import io
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Optional, Protocol, Union

from .errors import ProtocolError

Uploadable = Union[str, "os.PathLike[str]", bytes, IO[bytes]]
"""What can be uploaded: a local path, bytes, or a file open for reading in binary mode."""

CHUNK = 256 * 1024


class Source:
    """Content to send. `repeatable` when it can be sent a second time."""

    def __init__(self, content: Uploadable) -> None:
        self._bytes: Optional[bytes] = None
        self._path: Optional[Path] = None
        self._file: Optional[IO[bytes]] = None
        self._start = 0
        self.name: Optional[str] = None
        if isinstance(content, (bytes, bytearray, memoryview)):
            self._bytes = bytes(content)
        elif isinstance(content, (str, os.PathLike)):
            self._path = Path(content)
            if not self._path.is_file():
                kind = "a folder; upload_many() takes folders" if self._path.is_dir() else "there is no such local file"
                raise FileNotFoundError(f"{str(self._path)!r}: {kind}. To store text, use write(path, text)")
            self.name = self._path.name
        elif hasattr(content, "read"):
            self._file = content
            self._start = content.tell() if _seekable(content) else 0
            name = getattr(content, "name", None)
            self.name = Path(name).name if isinstance(name, str) else None
        else:
            raise TypeError(
                f"cannot upload {type(content).__name__}: give a local path, bytes, or a file open in binary mode"
            )

    @property
    def repeatable(self) -> bool:
        return self._file is None or _seekable(self._file)

    @property
    def held(self) -> Optional[bytes]:
        """The content, where it is in memory anyway."""
        return self._bytes

    def open(self) -> IO[bytes]:
        """The content from its beginning. What belongs to the caller is not closed with it."""
        if self._bytes is not None:
            return io.BytesIO(self._bytes)
        if self._path is not None:
            return self._path.open("rb")
        assert self._file is not None
        if _seekable(self._file):
            self._file.seek(self._start)
        return _Borrowed(self._file)  # type: ignore[return-value]

    def chunks(self) -> Iterator[bytes]:
        """The content, piece by piece."""
        with self.open() as file:
            while chunk := file.read(CHUNK):
                if not isinstance(chunk, bytes):
                    raise TypeError("the file is open in text mode; open it with mode 'rb'")
                yield chunk


class _Borrowed:
    """A file that is not ours to close, nor to rewind further than to where it was."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __enter__(self) -> _Borrowed:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def close(self) -> None:
        pass


def _seekable(file: IO[bytes]) -> bool:
    try:
        return file.seekable()
    except (AttributeError, ValueError):
        return False


@dataclass(frozen=True)
class Part:
    """One file of a multipart body; `name` is its path below the folder."""

    name: str
    source: Source


class Sink(Protocol):
    """Where a download goes."""

    def write(self, chunk: bytes) -> None: ...
    def restart(self) -> bool:
        """Back to the beginning; false when that is impossible."""
        ...

    def finish(self) -> None: ...
    def abandon(self) -> None: ...


class MemorySink:
    """Keeps the content."""

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, chunk: bytes) -> None:
        self.content += chunk

    def restart(self) -> bool:
        self.content.clear()
        return True

    def finish(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class PathSink:
    """Writes a file, which appears under its name when it is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        self._file: IO[bytes] = self._part.open("xb")

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)

    def restart(self) -> bool:
        self._file.seek(0)
        self._file.truncate()
        return True

    def finish(self) -> None:
        self._file.close()
        self._part.replace(self.path)

    def abandon(self) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)


class FileSink:
    """Writes into a file that the caller has open."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._start = file.tell() if _seekable(file) else None

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)

    def restart(self) -> bool:
        if self._start is None:
            return False
        self._file.seek(self._start)
        self._file.truncate()
        return True

    def finish(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class HashedSink:
    """Passes on to another sink, and refuses to finish when the content has not the hash it should have."""

    def __init__(self, sink: Sink, sha256: str) -> None:
        self._sink = sink
        self._wanted = sha256
        self._hash = hashlib.sha256()

    def write(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self._sink.write(chunk)

    def restart(self) -> bool:
        self._hash = hashlib.sha256()
        return self._sink.restart()

    def finish(self) -> None:
        if self._wanted and self._hash.hexdigest() != self._wanted:
            raise ProtocolError("what arrived has not the hash that the server told")
        self._sink.finish()

    def abandon(self) -> None:
        self._sink.abandon()


def sink_for(to: Union[str, os.PathLike[str], IO[bytes]], name: str) -> tuple[Sink, Optional[Path]]:
    """Where a download to `to` goes: a path, a folder (where it is called `name`), or an open file."""
    if not isinstance(to, (str, os.PathLike)):
        return FileSink(to), None
    path = Path(to)
    if path.is_dir():
        path = path / name
    return PathSink(path), path
