"""Sessions and their files, against a real server."""

from __future__ import annotations

import asyncio
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Callable

import pytest

import fumehood
from fumehood import AsyncClient, Client, Session

from .conftest import until


def test_variables_stay_from_run_to_run(session: Session) -> None:
    assert session.run("x = 41").ok
    assert session.run("x + 1").result == 42
    assert session.variables()["x"].repr == "41"
    assert "".join(event.text for event in session.stream("print(x)") if event.type == "stdout") == "41\n"
    assert [execution.session_id for execution in session.executions()] == [session.id] * 3


def test_a_session_is_closed_at_the_end_and_says_so_afterwards(client: Client) -> None:
    with client.session(metadata={"who": "test"}) as session:
        assert session.info.metadata == {"who": "test"}
        assert session.id in [info.id for info in client.sessions()]
    assert session.info.state == "closed"
    with pytest.raises(fumehood.SessionGone, match="deleted on request"):
        session.run("1")
    session.close()


def test_an_error_inside_is_not_hidden_by_a_server_that_is_gone(client: Client) -> None:
    unreachable = Client("http://127.0.0.1:1", retries=0)
    with pytest.raises(RuntimeError, match="mine"), client.session() as session:
        session.close()
        session._client, session._operations = unreachable, unreachable._operations
        raise RuntimeError("mine")
    unreachable.close()


def test_attaching_leaves_the_session_open(client: Client, session: Session) -> None:
    session.run("x = 1")
    with client.attach(session.id) as same:
        assert same.run("x").result == 1
    assert session.run("x").result == 1
    with pytest.raises(fumehood.NotFound):
        client.attach("ses_unknown")


def test_an_interrupted_run_keeps_the_variables(client: Client, session: Session) -> None:
    session.run("x = 1")
    pending = session.submit("import time\ntime.sleep(60)")
    until(lambda: client.execution(pending.id).status == "running" and session.refresh().state == "running")
    # The interpreter may not have come to the code yet, and an interrupt that nothing runs for does nothing.
    until(lambda: session.interrupt() and client.execution(pending.id).finished)
    assert "KeyboardInterrupt" in pending.wait().text
    assert session.run("x").result == 1


def test_a_reset_forgets_variables_and_keeps_files(session: Session) -> None:
    session.run("x = 1\nopen('kept', 'w').write('k')")
    assert session.reset().restarts == 1
    assert session.variables() == {}
    assert not session.run("x").ok
    assert session.files.read_text("kept") == "k"


def test_a_restarted_interpreter_is_told_in_the_text(session: Session) -> None:
    session.run("x = 1")
    execution = session.run("import os\nos._exit(1)")
    assert execution.interpreter_restarted
    assert "restarted" in execution.text


def test_a_session_can_be_extended(session: Session) -> None:
    assert session.extend(3600).id == session.id
    with pytest.raises(fumehood.InvalidArgument, match="ttl_s"):
        session.extend(0)


def test_a_busy_session_refuses_who_does_not_want_to_wait(client: Client, session: Session) -> None:
    pending = session.submit("import time\ntime.sleep(60)")
    until(lambda: client.execution(pending.id).status == "running")
    with pytest.raises(fumehood.Conflict, match="busy"):
        session.run("1", wait=False)
    pending.cancel()


def test_a_paused_session_goes_on_where_it_was(session: Session, offers: Callable[[str], None]) -> None:
    offers("/v1/sessions/{id}/pause")
    session.run("x = 1")
    assert session.pause().state == "paused"
    assert session.resume().state in ("idle", "running")
    assert session.run("x").result == 1


def test_what_code_left_running_is_listed(session: Session, offers: Callable[[str], None]) -> None:
    offers("/v1/sessions/{id}/processes")
    session.run("import subprocess\nsubprocess.Popen(['sleep', '60'])", check=True)
    found = [process for process in session.processes() if process.command.startswith("sleep 60")]
    assert len(found) == 1
    assert found[0].pid > 1
    assert session.refresh().memory_mb > 0


def test_what_runs_in_a_session_can_be_told_more(
    client: Client, session: Session, offers: Callable[[str], None]
) -> None:
    offers("/v1/executions/{id}/stdin")
    with pytest.raises(ValueError, match="nothing runs"):
        session.stdin("x")
    pending = session.submit("input()", stdin_open=True)
    until(lambda: session.refresh().running == pending.id)
    session.stdin("Ada\n", eof=True)
    assert pending.wait().result == "Ada"


def test_files_of_all_kinds_are_stored_and_read(session: Session, tmp_path: Path) -> None:
    local = tmp_path / "sales ü.csv"
    local.write_text("a,b\n1,2\n")
    assert session.files.upload(local).path == "uploads/sales ü.csv"
    assert session.files.upload(str(local), "in/").path == "in/sales ü.csv"
    assert session.files.upload(b"bytes", "/data/in/b").size == 5
    opened = io.BytesIO(b"skipped rest")
    opened.seek(8)
    assert session.files.upload(opened, "in/rest").size == 4
    assert not opened.closed
    assert session.files.write("in/text", "grün").size == 5
    assert session.files.read("in/rest") == b"rest"
    assert session.files.read_text("in/text") == "grün"
    assert session.run("open('uploads/sales ü.csv').read()").result == "a,b\n1,2\n"

    listed = session.files.list("in")
    assert listed.paths == ["in/b", "in/rest", "in/sales ü.csv", "in/text"]
    assert listed.complete
    assert listed[0].size == 5
    assert listed[0].modified_at is not None
    assert "in/b" in session.files.list(recursive=True).paths
    session.files.delete("in")
    with pytest.raises(fumehood.NotFound):
        session.files.read("in/b")


def test_a_large_file_goes_both_ways_in_pieces(session: Session, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096 * 20
    (tmp_path / "large").write_bytes(content)
    session.files.upload(tmp_path / "large", "large")
    assert session.files.download("large", tmp_path / "back") == tmp_path / "back"
    assert (tmp_path / "back").read_bytes() == content
    buffer = io.BytesIO()
    session.files.download("large", buffer)
    assert buffer.getvalue() == content


def test_what_cannot_be_stored_is_refused_in_words(session: Session, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such local file. To store text, use write"):
        session.files.upload("no such file")
    with pytest.raises(FileNotFoundError, match=r"a folder; upload_many\(\) takes folders"):
        session.files.upload(tmp_path)
    with pytest.raises(TypeError, match="needs a path"):
        session.files.upload(b"x")
    with pytest.raises(TypeError, match="cannot upload StringIO|open it with mode 'rb'"):
        session.files.upload(io.StringIO("x"), "x")  # type: ignore[arg-type]
    for path in ("../x", "a/../../x", "/etc/passwd", ""):
        with pytest.raises(ValueError, match="must not contain|not in the workspace|names no file"):
            session.files.read(path)


def test_a_full_disk_is_told_as_such(client: Client) -> None:
    with client.session(limits={"disk_mb": 4}) as session, pytest.raises(fumehood.DiskFull, match="disk_mb"):
        session.files.upload(b"x" * (8 << 20), "large")


def test_a_download_that_fails_leaves_nothing(session: Session, tmp_path: Path) -> None:
    with pytest.raises(fumehood.NotFound):
        session.files.download("missing", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_many_files_go_in_one_request(session: Session, tmp_path: Path, offers: Callable[[str], None]) -> None:
    offers("/v1/sessions/{id}/files:upload")
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "sub" / "b.txt").write_text("bb")
    stored = session.files.upload_many(tmp_path, "in")
    assert sorted((file.path, file.size) for file in stored) == [("in/a.txt", 1), ("in/sub/b.txt", 2)]
    session.files.upload_many({"x/y": b"1", "z": io.BytesIO(b"22")}, "more")
    assert session.files.read("more/x/y") == b"1"
    assert session.files.read("more/z") == b"22"
    session.files.upload_many([tmp_path / "a.txt"])
    assert session.files.read("uploads/a.txt") == b"a"
    assert session.files.upload_many([]) == []


def test_a_folder_comes_as_an_archive(session: Session, tmp_path: Path, offers: Callable[[str], None]) -> None:
    offers("/v1/sessions/{id}/files:archive")
    session.files.write("out/a.txt", "a")
    session.files.write("out/deep/b.txt", "b")
    archive = session.files.archive(tmp_path / "out.tar.gz", "out")
    assert archive is not None
    with tarfile.open(archive) as tar:
        assert any(name.endswith("deep/b.txt") for name in tar.getnames())
    archive = session.files.archive(tmp_path / "out.zip", "out")
    assert archive is not None
    with zipfile.ZipFile(archive) as packed:
        assert any(name.endswith("a.txt") for name in packed.namelist())
    assert session.files.archive(tmp_path) == tmp_path / f"{session.id}.tar.gz"


def test_the_asynchronous_session_does_the_same(url: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 600_000)

    async def scenario() -> None:
        async with AsyncClient(url) as client:
            async with client.session() as session:
                assert (await session.run("x = 1")).ok
                stored = await session.files.upload(tmp_path / "a")
                assert stored.size == 600_000
                await session.files.download(stored.path, tmp_path / "b")
                assert [event.type async for event in session.stream("x")][-1] == "result"
                async with client.attach(session.id) as same:
                    assert (await same.variables())["x"].repr == "1"
                await session.reset()
                assert (await session.refresh()).state == "idle"
            assert session.info.state == "closed"
            loose = await client.session()
            assert (await loose.close()).state == "closed"

    asyncio.run(scenario())
    assert (tmp_path / "b").read_bytes() == b"a" * 600_000
