"""What goes over the wire, where that cannot be seen from the answers."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fumehood
from fumehood import AsyncClient, Client, Session

from .servers import Answer, FaultyServer

SESSION = {"id": "ses_1", "state": "running", "running": "exe_7"}


@pytest.fixture
def attached(faulty: FaultyServer) -> Iterator[Session]:
    faulty.will(Answer.of(SESSION))
    with Client(faulty.url) as client:
        yield client.attach("ses_1")


def test_several_files_are_one_multipart_body(faulty: FaultyServer, attached: Session, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b ü.txt").write_bytes(b"\x00\xff\r\n--")
    (tmp_path / "a.txt").write_text("a")
    faulty.will(Answer.of(SESSION), Answer.of({"files": [{"path": "in/a.txt", "size": 1}]}, 201))
    assert attached.files.upload_many(tmp_path, "/data/in/")[0].path == "in/a.txt"
    asked = faulty.asked[-1]
    assert (asked.method, asked.path) == ("POST", "/v1/sessions/ses_1/files:upload?path=in")
    assert asked.headers["content-type"].startswith("multipart/form-data; boundary=")
    boundary = asked.headers["content-type"].partition("=")[2].encode()
    parts = asked.body.split(b"--" + boundary)
    assert len(parts) == 4
    assert b'filename="a.txt"' in parts[1]
    assert 'filename="sub/b ü.txt"'.encode() in parts[2]
    assert parts[2].endswith(b"\r\n\r\n\x00\xff\r\n--\r\n")


def test_an_open_file_is_sent_from_where_it_stands_in_a_multipart_body_too(
    faulty: FaultyServer, attached: Session
) -> None:
    opened = io.BytesIO(b"skipped rest")
    opened.seek(8)
    attached.files.upload_many({"x": opened})
    assert b"\r\n\r\nrest\r\n" in faulty.asked[-1].body
    assert not opened.closed


def test_the_asynchronous_client_sends_the_same_bodies(faulty: FaultyServer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 1_000_000)
    faulty.will(Answer.of(SESSION), Answer.of({"files": []}, 201), Answer.of({"path": "x", "size": 1}))

    async def scenario() -> None:
        async with AsyncClient(faulty.url) as client:
            session = await client.attach("ses_1")
            await session.files.upload_many([tmp_path / "a.txt"], "in")
            await session.files.upload(tmp_path / "a.txt", "x")

    asyncio.run(scenario())
    assert b"a" * 1_000_000 in faulty.asked[1].body
    assert faulty.asked[2].body.count(b"a") >= 1_000_000


def test_an_archive_is_of_the_kind_that_its_name_says(faulty: FaultyServer, attached: Session, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz"):
        pass
    faulty.will(Answer.of(SESSION), Answer(200, buffer.getvalue()))
    for to, form in (
        (tmp_path / "a.zip", "zip"),
        (tmp_path / "a.tar.gz", "tar.gz"),
        (tmp_path, "tar.gz"),
        (io.BytesIO(), "tar.gz"),
    ):
        attached.files.archive(to, "/data/out")
        assert faulty.asked[-1].path == "/v1/sessions/ses_1/files:archive"
        assert faulty.asked[-1].json == {"path": "out", "format": form}
    assert (tmp_path / "out.tar.gz").exists()
    attached.files.archive(tmp_path / "b", format="zip")
    assert faulty.asked[-1].json == {"path": "", "format": "zip"}


def test_input_goes_to_what_runs_now(faulty: FaultyServer, attached: Session) -> None:
    attached.stdin("Ada\n", eof=True)
    assert faulty.asked[-1].path == "/v1/executions/exe_7/stdin"
    assert faulty.asked[-1].json == {"data": "Ada\n", "eof": True}


def test_a_session_stands_still_and_goes_on(faulty: FaultyServer, attached: Session) -> None:
    faulty.will(Answer.of(SESSION), Answer.of({**SESSION, "state": "paused"}), Answer.of({**SESSION, "state": "idle"}))
    assert attached.pause().state == "paused"
    assert attached.info.state == "paused"
    assert attached.resume().state == "idle"
    assert [asked.path for asked in faulty.asked[1:]] == ["/v1/sessions/ses_1/pause", "/v1/sessions/ses_1/resume"]


def test_names_of_files_are_quoted(faulty: FaultyServer, attached: Session) -> None:
    attached.files.read("a b/c?d#e%f/ü")
    assert faulty.asked[-1].path == "/v1/sessions/ses_1/files/a%20b/c%3Fd%23e%25f/%C3%BC"


def test_who_does_not_want_to_wait_says_so_in_the_address(faulty: FaultyServer, attached: Session) -> None:
    faulty.will(Answer.of(SESSION), Answer.refusal(409, "conflict"))
    with pytest.raises(fumehood.Conflict):
        attached.run("1", wait=False)
    assert faulty.asked[-1].path == "/v1/sessions/ses_1/executions?wait=false"
    assert "wait" not in faulty.asked[-1].json
