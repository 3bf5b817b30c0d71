"""Sessions, files and the state of the server, as they come back."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Optional

from . import _json
from ._json import Json
from .execution import Isolation


@dataclass
class SessionInfo:
    """A session at one moment. `state` is `creating`, `idle`, `running`, `paused`, `closed` or `lost`; the last two have a `reason`."""

    id: str
    state: str
    reason: Optional[str]
    template: str
    isolation: Isolation
    running: Optional[str]
    queued: int
    executions: int
    restarts: int
    idle_timeout_s: int
    ttl_s: int
    metadata: Json
    created_at: Optional[datetime]
    last_used_at: Optional[datetime]
    closed_at: Optional[datetime]
    memory_mb: float
    """In use now, files included."""
    tasks: int
    """Processes and threads there are now."""
    expires_at: Optional[datetime]
    """When it is closed whatever happens."""
    memory_given_back_mb: Optional[float]
    """What pausing freed; `None` unless it is paused."""
    raw: Json = field(repr=False)

    @classmethod
    def from_json(cls, data: Json) -> SessionInfo:
        return cls(
            id=_json.text(data, "id"),
            state=_json.text(data, "state"),
            reason=_json.maybe_text(data, "reason"),
            template=_json.text(data, "template"),
            isolation=Isolation.from_json(_json.mapping(data, "isolation")),
            running=_json.maybe_text(data, "running"),
            queued=_json.whole(data, "queued"),
            executions=_json.whole(data, "executions"),
            restarts=_json.whole(data, "restarts"),
            idle_timeout_s=_json.whole(data, "idle_timeout_s"),
            ttl_s=_json.whole(data, "ttl_s"),
            metadata=_json.mapping(data, "metadata"),
            created_at=_json.moment(data, "created_at"),
            last_used_at=_json.moment(data, "last_used_at"),
            closed_at=_json.moment(data, "closed_at"),
            memory_mb=_json.number(data, "memory_mb"),
            tasks=_json.whole(data, "tasks"),
            expires_at=_json.moment(data, "expires_at"),
            memory_given_back_mb=_json.maybe_number(data, "memory_given_back_mb"),
            raw=data,
        )


@dataclass
class SandboxProcess:
    """A process of a session, as the host sees it. `command` is the sandbox's own word; `state` is the kernel's letter (`R` runs, `S` waits …)."""

    pid: int
    command: str
    threads: int
    memory_mb: float
    state: str

    @classmethod
    def from_json(cls, data: Json) -> SandboxProcess:
        return cls(
            pid=_json.whole(data, "pid"),
            command=_json.text(data, "command"),
            threads=_json.whole(data, "threads"),
            memory_mb=_json.number(data, "memory_mb"),
            state=_json.text(data, "state"),
        )


@dataclass
class FileEntry:
    """A file of a session: `path` below the workspace; `kind` is `file`, `folder` or `other`, which cannot be read."""

    path: str
    kind: str
    size: int
    modified_at: Optional[datetime]

    @classmethod
    def from_json(cls, data: Json) -> FileEntry:
        return cls(
            path=_json.text(data, "path"),
            kind=_json.text(data, "kind", "file"),
            size=_json.whole(data, "size"),
            modified_at=_json.moment(data, "modified_at"),
        )


class FileList(list[FileEntry]):
    """Entries of a folder, by path. `complete` is false when there were more than the server lists."""

    def __init__(self, entries: list[FileEntry], complete: bool) -> None:
        super().__init__(entries)
        self.complete = complete

    @property
    def paths(self) -> list[str]:
        return [entry.path for entry in self]

    @classmethod
    def from_json(cls, data: Json) -> FileList:
        entries = [FileEntry.from_json(entry) for entry in _json.objects(data, "files")]
        return cls(entries, data.get("complete") is not False)


@dataclass
class StoredFile:
    """What became of an upload."""

    path: str
    size: int

    @classmethod
    def from_json(cls, data: Json) -> StoredFile:
        return cls(_json.text(data, "path"), _json.whole(data, "size"))


@dataclass
class Template:
    """A version of a template: what code runs in. `spec` is what it says, as it would be written."""

    name: str
    version: int
    built_in: bool
    created_at: Optional[datetime]
    spec: Json

    @classmethod
    def from_json(cls, data: Json) -> Template:
        return cls(
            name=_json.text(data, "name"),
            version=_json.whole(data, "version"),
            built_in=_json.flag(data, "built_in"),
            created_at=_json.moment(data, "created_at"),
            spec=_json.mapping(data, "spec"),
        )

    def __str__(self) -> str:
        """As `template=` takes it: this version for ever."""
        return f"{self.name}@{self.version}"


@dataclass
class Health:
    """The server as `GET /health` shows it."""

    status: str
    version: str
    uptime: str
    raw: Json = field(repr=False)

    @classmethod
    def from_json(cls, data: Json) -> Health:
        return cls(_json.text(data, "status"), _json.text(data, "version"), _json.text(data, "uptime"), data)


@dataclass
class Pool:
    """Places for executions, and sandboxes that wait ready."""

    running: int
    queued: int
    capacity: int
    ready: int
    target: int
    raw: Json = field(repr=False)

    @classmethod
    def from_json(cls, data: Json) -> Pool:
        return cls(
            running=_json.whole(data, "running"),
            queued=_json.whole(data, "queued"),
            capacity=_json.whole(data, "capacity"),
            ready=_json.whole(data, "ready"),
            target=_json.whole(data, "target"),
            raw=data,
        )
