"""Servers and networks that fail: what is tried again, what is not, and what the caller gets."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any, Callable

import httpx
import pytest

import fumehood
from fumehood import AsyncClient, Client, Retry

from .servers import NOTHING, Answer, CuttingProxy, FaultyServer

EXECUTION = {"id": "exe_1", "status": "completed", "outcome": "exited", "exit_code": 0, "stdout": "hi\n", "result": 42}
SESSION = {"id": "ses_1", "state": "idle"}
STARTED = {"seq": 1, "type": "started", "data": {"id": "exe_1", "at": "2024-01-01T00:00:00Z"}}
STDOUT = {"seq": 2, "type": "stdout", "data": {"text": "hi\n"}}
RESULT = {"seq": 3, "type": "result", "data": EXECUTION}


class Patient:
    """A client that notes its pauses instead of making them, and whose chance always says the longest."""

    def __init__(self, url: str, tries: int = 5, **options: Any) -> None:
        self.pauses: list[float] = []
        retry = Retry(tries=tries, chance=lambda: 1.0)
        self.client = Client(url, retries=retry, sleep=self.pauses.append, **options)

    def __enter__(self) -> Patient:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()


def test_a_server_that_is_not_ready_yet_is_asked_again(faulty: FaultyServer) -> None:
    refusal = Answer.refusal(503, "unavailable")
    with Patient(faulty.will(refusal, refusal, Answer.of(EXECUTION))) as patient:
        assert patient.client.run("6 * 7").result == 42
        assert patient.pauses == [0.2, 0.4]


def test_a_full_queue_is_waited_for_as_long_as_it_asks(faulty: FaultyServer) -> None:
    refusal = Answer.refusal(429, "too_many_requests", Retry_After="3")
    with Patient(faulty.will(refusal, Answer.of(EXECUTION))) as patient:
        assert patient.client.run("6 * 7").ok
        assert len(patient.pauses) == 1
        assert 3 <= patient.pauses[0] <= 4


def test_a_wait_that_is_too_long_is_left_to_the_caller(faulty: FaultyServer) -> None:
    with Patient(faulty.will(Answer.refusal(429, "too_many_requests", Retry_After="3600"))) as patient:
        with pytest.raises(fumehood.Busy) as caught:
            patient.client.run("1")
        assert caught.value.retry_after_s == 3600
        assert patient.pauses == []


def test_tries_are_bounded(faulty: FaultyServer) -> None:
    with Patient(faulty.will(Answer.refusal(503, "unavailable", "the server is shutting down")), tries=3) as patient:
        with pytest.raises(fumehood.Unavailable, match="shutting down"):
            patient.client.run("1")
    assert len(faulty.asked) == 3


def test_pauses_grow_up_to_a_bound_and_vary() -> None:
    longest = Retry(tries=100, chance=lambda: 1.0)
    assert [longest.pause_s(failures) for failures in (1, 2, 3, 50)] == [0.2, 0.4, 0.8, 8.0]
    shortest = Retry(tries=100, chance=lambda: 0.0)
    assert shortest.pause_s(3) == 0.4


def test_a_run_sent_again_has_the_same_key_and_body(faulty: FaultyServer) -> None:
    with Patient(faulty.will(NOTHING, Answer.refusal(503, "unavailable"), Answer.of(EXECUTION))) as patient:
        assert patient.client.run("6 * 7", input={"a": 1}).ok
        assert patient.client.run("6 * 7", input={"a": 1}).ok
    first, second, third, other = faulty.asked
    keys = [asked.headers["idempotency-key"] for asked in (first, second, third)]
    assert keys[0]
    assert set(keys) == {keys[0]}
    assert first.body == second.body == third.body
    assert other.headers["idempotency-key"] != keys[0]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 413, 500])
def test_what_is_refused_for_good_is_not_asked_again(faulty: FaultyServer, code: int) -> None:
    with Patient(faulty.will(Answer.refusal(code, "whatever"))) as patient, pytest.raises(fumehood.ApiError) as caught:
        patient.client.run("1")
    assert caught.value.status == code
    assert len(faulty.asked) == 1


def test_every_creating_request_carries_a_key(faulty: FaultyServer) -> None:
    with Patient(faulty.will(Answer.of(EXECUTION), Answer.of(EXECUTION, 202), Answer.of(SESSION, 201))) as patient:
        patient.client.run("1")
        patient.client.submit("1")
        patient.client.session()
    keys = [asked.headers["idempotency-key"] for asked in faulty.asked]
    assert len(set(keys)) == 3


def test_what_must_not_happen_twice_is_sent_once(faulty: FaultyServer) -> None:
    with Patient(faulty.will(Answer.of(SESSION), NOTHING)) as patient:
        session = patient.client.attach("ses_1")
        for once in (session.interrupt, lambda: patient.client.send_stdin("exe_1", "x")):
            before = len(faulty.asked)
            with pytest.raises(fumehood.ConnectionFailed):
                once()
            assert len(faulty.asked) == before + 1


def test_a_stream_that_breaks_off_goes_on_after_the_last_event(faulty: FaultyServer) -> None:
    broken = Answer.events(STARTED, STDOUT, drop=True, tail=b'id: 3\nevent: result\ndata: {"seq": 3, "ty')
    with Patient(faulty.will(broken, NOTHING, Answer.events(RESULT))) as patient:
        events = list(patient.client.stream("print('hi')"))
    assert [event.seq for event in events] == [1, 2, 3]
    assert [f"{asked.method} {asked.path}" for asked in faulty.asked] == [
        "POST /v1/executions",
        "GET /v1/executions/exe_1/events?after=2",
        "GET /v1/executions/exe_1/events?after=2",
    ]


def test_a_stream_that_breaks_before_its_first_event_starts_the_code_once(faulty: FaultyServer) -> None:
    replayed = Answer.events(STARTED, STDOUT, RESULT)
    with Patient(faulty.will(NOTHING, Answer.events(drop=True), replayed)) as patient:
        assert [event.seq for event in patient.client.stream("x")] == [1, 2, 3]
    assert faulty.asked[0].headers["idempotency-key"] == faulty.asked[1].headers["idempotency-key"]
    assert faulty.asked[2].path == "/v1/executions/exe_1/events?after=0"


def test_events_that_come_twice_are_given_once(faulty: FaultyServer) -> None:
    with Patient(
        faulty.will(Answer.events(STARTED, STDOUT, drop=True), Answer.events(STARTED, STDOUT, RESULT))
    ) as patient:
        heard: list[str] = []
        assert patient.client.run("x", on_stdout=heard.append).ok
    assert heard == ["hi\n"]


def test_a_stream_that_stays_broken_says_how_to_go_on(faulty: FaultyServer) -> None:
    with Patient(faulty.will(Answer.events(STARTED, STDOUT, drop=True), NOTHING), tries=3) as patient:
        with pytest.raises(fumehood.StreamBroken, match="exe_1 broke off after number 2") as caught:
            list(patient.client.stream("x"))
    assert (caught.value.execution_id, caught.value.after) == ("exe_1", 2)
    assert len(faulty.asked) == 3


def test_a_server_that_was_restarted_is_told_as_such(faulty: FaultyServer) -> None:
    gone = Answer.refusal(404, "not_found", "no such execution")
    with Patient(faulty.will(Answer.events(STARTED, drop=True), gone)) as patient:
        with pytest.raises(fumehood.StreamBroken, match="probably restarted"):
            list(patient.client.stream("x"))


def test_garbage_is_told_from_a_broken_connection(faulty: FaultyServer) -> None:
    page = Answer(200, b"<html>Welcome to the router</html>", {"Content-Type": "text/html"})
    nonsense = Answer(200, b"data: {nonsense\n\n", {"Content-Type": "text/event-stream"})
    with Patient(faulty.will(page, page, nonsense, Answer.of({"id": 3}), Answer.of([1]))) as patient:
        for ask, words in (
            (lambda: patient.client.run("1"), "Welcome to the router"),
            (lambda: list(patient.client.stream("1")), "no stream of events"),
            (lambda: list(patient.client.stream("1")), "no event: '{nonsense'"),
            (lambda: patient.client.run("1"), "no execution"),
            (lambda: patient.client.health(), "no JSON object"),
        ):
            with pytest.raises(fumehood.ProtocolError, match=words):
                ask()
        assert patient.pauses == []


def test_refusals_of_others_are_errors_all_the_same(faulty: FaultyServer) -> None:
    with (
        Patient(faulty.will(Answer(403, b"<h1>proxy says no</h1>"))) as patient,
        pytest.raises(fumehood.Forbidden, match="proxy says no"),
    ):
        patient.client.run("1")
    with Patient(faulty.will(Answer(502, b"bad gateway")), tries=2) as patient:
        with pytest.raises(fumehood.Unavailable):
            patient.client.run("1")
        assert len(patient.pauses) == 1


def test_nobody_listening_is_said_with_the_address() -> None:
    with Patient("http://127.0.0.1:1", tries=3) as patient:
        with pytest.raises(fumehood.ConnectionFailed, match=r"cannot connect to http://127.0.0.1:1: .*tried 3 times"):
            patient.client.run("1")
        assert len(patient.pauses) == 2
        assert patient.client.base_url == "http://127.0.0.1:1"


def test_a_server_that_says_nothing_is_given_up() -> None:
    def silent(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("", request=request)

    with Patient("http://server", tries=2, transport=httpx.MockTransport(silent)) as patient:
        with pytest.raises(fumehood.ConnectionFailed, match=r"silent for 61\.5 s \(POST /v1/executions\)"):
            patient.client.run("1", timeout_ms=1500)


def test_an_event_may_come_in_any_pieces(faulty: FaultyServer) -> None:
    whole = Answer.events(STARTED, {**STDOUT, "data": {"text": "grün ✓\u2028"}}, RESULT)
    text = b": keep-alive\n\n" + whole.body.decode().encode().replace(b"\n", b"\r\n")
    pieces = [text[at : at + 1] for at in range(len(text))]
    answer = Answer(200, b"", whole.headers, pieces=pieces)
    with Patient(faulty.will(answer)) as patient:
        events = list(patient.client.stream("x"))
    assert events[1].text == "grün ✓\u2028"
    assert events[-1].execution is not None


def test_an_execution_of_another_version_is_read_as_far_as_it_is_known(faulty: FaultyServer) -> None:
    odd = {
        **EXECUTION,
        "new_field": 1,
        "metrics": None,
        "outputs": [3, {"mime": None}],
        "dataframe": {"shape": [1]},
        "created_at": "soon",
    }
    with Patient(faulty.will(Answer.of(odd))) as patient:
        execution = patient.client.run("1")
    assert execution.ok
    assert execution.raw["new_field"] == 1
    assert execution.created_at is None
    assert execution.text
    assert execution._repr_html_()


def test_an_artifact_with_the_wrong_content_is_refused(faulty: FaultyServer, tmp_path: Path) -> None:
    about = {
        "path": "a.txt",
        "size": 1,
        "sha256": "0" * 64,
        "mime": "text/plain",
        "url": "/v1/executions/exe_1/artifacts/a.txt",
    }
    with Patient(faulty.will(Answer.of({**EXECUTION, "artifacts": [about]}), Answer(200, b"x"))) as patient:
        artifact = patient.client.run("1").artifacts[0]
        with pytest.raises(fumehood.ProtocolError, match="hash"):
            artifact.save(tmp_path)
        with pytest.raises(fumehood.ProtocolError, match="hash"):
            artifact.read()
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_breaks_off_goes_on_where_it_stopped(faulty: FaultyServer, tmp_path: Path) -> None:
    faulty.will(
        Answer.of(SESSION),
        Answer(200, b"abc", {"ETag": '"1"'}, drop=True),
        Answer(206, b"def", {"ETag": '"1"', "Content-Range": "bytes 3-5/6"}),
    )
    with Patient(faulty.url) as patient:
        patient.client.attach("ses_1").files.download("f", tmp_path)
    assert (tmp_path / "f").read_bytes() == b"abcdef"
    assert faulty.asked[2].headers["range"] == "bytes=3-"


def test_a_download_of_a_file_that_changed_begins_anew(faulty: FaultyServer, tmp_path: Path) -> None:
    faulty.will(
        Answer.of(SESSION),
        Answer(200, b"abc", {"ETag": '"1"'}, drop=True),
        Answer(206, b"DEF", {"ETag": '"2"', "Content-Range": "bytes 3-5/6"}),
        Answer(200, b"ABCDEF", {"ETag": '"2"'}),
    )
    with Patient(faulty.url) as patient:
        patient.client.attach("ses_1").files.download("f", tmp_path)
    assert (tmp_path / "f").read_bytes() == b"ABCDEF"


def test_an_upload_is_repeated_only_when_it_can_be(faulty: FaultyServer, tmp_path: Path) -> None:
    class Pipe(io.RawIOBase):
        """Readable once."""

        def __init__(self) -> None:
            self.content = [b"once"]

        def read(self, size: int = -1) -> bytes:
            return self.content.pop() if self.content else b""

    (tmp_path / "f").write_bytes(b"file")
    stored = Answer.of({"path": "f", "size": 4}, 201)
    opened = io.BytesIO(b"--open")
    opened.seek(2)
    for content, repeated in ((b"byte", True), (tmp_path / "f", True), (opened, True), (Pipe(), False)):
        server = FaultyServer()
        with server, Patient(server.will(Answer.of(SESSION), NOTHING, stored)) as patient:
            files = patient.client.attach("ses_1").files
            if repeated:
                assert files.upload(content, "f").size == 4  # type: ignore[arg-type]
                assert server.asked[1].body == server.asked[2].body
            else:
                with pytest.raises(fumehood.ConnectionFailed):
                    files.upload(content, "f")  # type: ignore[arg-type]
                assert len(server.asked) == 2


@pytest.mark.parametrize("cuts", [[0], [50, 0, 10], [200, 200, 300], [450, 150, 0, 250]])
def test_a_real_run_survives_connections_that_break(url: str, cuts: list[int]) -> None:
    code = "for i in range(20): print(i, flush=True)"
    with CuttingProxy(url, cuts) as proxy, Patient(proxy.url, tries=8) as patient:
        events = list(patient.client.stream(code))
        assert proxy.connections >= len(cuts)
        assert "".join(event.text for event in events if event.type == "stdout") == "".join(f"{i}\n" for i in range(20))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        execution = events[-1].execution
        assert execution is not None
        assert len([one for one in patient.client.executions(most=1000) if one.id == execution.id]) == 1


def test_a_real_run_whose_answer_is_lost_runs_once(url: str) -> None:
    with CuttingProxy(url, [0, 100]) as proxy, Patient(proxy.url) as patient:
        before = {execution.id for execution in patient.client.executions(most=1000)}
    with CuttingProxy(url, [0, 100]) as proxy, Patient(proxy.url) as patient:
        execution = patient.client.run("print('once')")
        after = [one for one in patient.client.executions(most=1000) if one.id not in before]
    assert execution.stdout == "once\n"
    assert [one.id for one in after].count(execution.id) == 1


def test_a_real_download_survives_connections_that_break(url: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 2000
    with Client(url) as client, client.session() as session:
        session.files.upload(content, "f")
        with CuttingProxy(url, [2000, 100_000, 0, 3000]) as proxy, Patient(proxy.url) as patient:
            # The first cut may hit the look-up of the session.
            patient.client.attach(session.id).files.download("f", tmp_path)
    assert (tmp_path / "f").read_bytes() == content


def test_the_asynchronous_client_fails_and_recovers_alike(faulty: FaultyServer) -> None:
    async def scenario() -> list[float]:
        pauses: list[float] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)

        async with AsyncClient(faulty.url, sleep=pause) as client:
            assert (await client.run("1")).ok
            assert [event.seq async for event in client.stream("x")] == [1, 2, 3]
            with pytest.raises(fumehood.ConnectionFailed):
                await AsyncClient("http://127.0.0.1:1", retries=0).run("1")
        return pauses

    faulty.will(
        NOTHING,
        Answer.refusal(503, "unavailable"),
        Answer.of(EXECUTION),
        Answer.events(STARTED, drop=True),
        Answer.events(STDOUT, RESULT),
    )
    assert len(asyncio.run(scenario())) == 3


def test_a_cancelled_task_leaves_no_connection_behind(url: str) -> None:
    async def scenario() -> None:
        async with AsyncClient(url) as client:
            started = asyncio.Event()

            async def listen() -> None:
                async with client.stream("import time\ntime.sleep(60)") as events:
                    async for _ in events:
                        identity.append(events.execution_id or "")
                        started.set()

            identity: list[str] = []
            task = asyncio.create_task(listen())
            await asyncio.wait_for(started.wait(), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # Leaving does not end the code.
            assert (await client.execution(identity[0])).status == "running"
            assert (await client.cancel(identity[0])).status == "cancelled"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Client("localhost:8080"), "must begin with http://"),
        (lambda: Client("http://x", "key\n"), "line break"),
        (lambda: Client("http://x", timeout_s=0), "timeout_s"),
        (lambda: Client("http://x", retries=-1), "retries"),
    ],
)
def test_wrong_settings_are_refused_in_words(make: Callable[[], Client], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_settings_come_from_the_environment(faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_URL", faulty.will(Answer.of(EXECUTION)) + "/")
    monkeypatch.setenv("FUMEHOOD_API_KEY", "secret")
    # A proxy for the outside is not asked for this machine.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with Client() as client:
        assert client.run("1").ok
        assert "secret" not in repr(client)
    assert faulty.asked[0].headers["authorization"] == "Bearer secret"
    assert faulty.asked[0].headers["user-agent"].startswith("fumehood-python/")


def test_a_missing_key_is_said_with_where_to_put_it(faulty: FaultyServer) -> None:
    with Client(faulty.will(Answer.refusal(401, "unauthorized", "an API key is needed"))) as client:
        with pytest.raises(fumehood.Unauthorized, match="an API key is needed .*FUMEHOOD_API_KEY"):
            client.run("1")


def test_an_address_may_have_a_path(faulty: FaultyServer) -> None:
    faulty.will(Answer.of(EXECUTION))
    with Client(faulty.url + "/sandbox/") as client:
        client.run("1")
    assert faulty.asked[0].path == "/sandbox/v1/executions"
