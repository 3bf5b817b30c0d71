"""A real server, named by FUMEHOOD_URL; `scripts/sdk-tests` starts one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, Callable, Optional, TypeVar

import httpx
import pytest

from fumehood import Client, Session

from .servers import FaultyServer

T = TypeVar("T")
DEADLINE_S = 30.0


@pytest.fixture(scope="session")
def url() -> str:
    address = os.environ.get("FUMEHOOD_URL")
    if not address:
        pytest.fail("FUMEHOOD_URL names no server; scripts/sdk-tests starts one")
    return address


@pytest.fixture(scope="session")
def openapi(url: str) -> dict[str, Any]:
    document: dict[str, Any] = httpx.get(f"{url}/openapi.json", trust_env=False).json()
    return document


@pytest.fixture(scope="session")
def offers(openapi: dict[str, Any]) -> Callable[[str], None]:
    """Skips the test when the server has not what it is about: a path, or `field` of the execution request."""

    def needs(what: str) -> None:
        fields = openapi["components"]["schemas"]["ExecutionRequest"]["properties"]
        if what not in (openapi["paths"] if what.startswith("/") else fields):
            pytest.skip(f"this server has no {what}")

    return needs


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def session(client: Client) -> Iterator[Session]:
    with client.session(idle_timeout_s=120) as session:
        yield session


@pytest.fixture
def faulty() -> Iterator[FaultyServer]:
    with FaultyServer() as server:
        yield server


def until(look: Callable[[], Optional[T]]) -> T:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := look()):
        assert time.monotonic() < deadline, "what was waited for did not happen"
    return found
