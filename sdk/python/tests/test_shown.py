"""What executions look like in text and in notebooks, and values that are odd. No server is needed."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from fumehood import Artifacts, Opaque, Output, Table, decode
from fumehood.execution import ArtifactRecord, ExecutionRecord, artifact_fields


def execution(**fields: Any) -> ExecutionRecord[ArtifactRecord]:
    data = {"id": "exe_1", "status": "completed", "outcome": "exited", **fields}
    return ExecutionRecord.parse(data, lambda about: ArtifactRecord(*artifact_fields(about)))


ATTACK = "<script>alert(1)</script>"


def test_nothing_that_code_wrote_becomes_markup_in_a_notebook() -> None:
    page = execution(
        stdout=ATTACK,
        stderr=ATTACK,
        outputs=[
            {"mime": {"text/html": ATTACK}, "metadata": {}},
            {"mime": {"text/plain": ATTACK}, "metadata": {}},
            {"mime": {"image/png": f'x"{ATTACK}'}, "metadata": {}},
            {"mime": {"image/svg+xml": f"<svg>{ATTACK}</svg>"}, "metadata": {}},
        ],
        status="failed",
        error={"code": "exception", "type": "E", "message": ATTACK},
        artifacts=[{"path": ATTACK, "size": 1}],
    )._repr_html_()
    assert ATTACK not in page
    assert '<iframe sandbox=""' in page
    assert "allow-scripts" not in page
    assert "data:image/svg+xml;base64," in page


def test_a_table_in_a_notebook_is_escaped_too() -> None:
    table = Table.from_json(
        {"shape": [1, 1], "columns": [ATTACK], "dtypes": {ATTACK: "str"}, "preview": [{ATTACK: ATTACK}]}
    )
    assert ATTACK not in table._repr_html_()
    assert execution(dataframe={"shape": [0, 0]}, outputs=[{"mime": {}, "metadata": {"kind": "result"}}])._repr_html_()


def test_a_notebook_gets_text_and_html() -> None:
    bundle = execution(stdout="hi\n")._repr_mimebundle_()
    assert bundle == {"text/plain": "hi", "text/html": "<pre>hi\n</pre>"}
    assert execution()._repr_mimebundle_()["text/plain"].startswith("<ExecutionRecord exe_1 completed")


def test_text_is_in_the_order_that_people_read() -> None:
    text = execution(
        stdout="printed\n",
        outputs=[
            {
                "mime": {"text/plain": "<Figure>", "image/png": "aGk="},
                "metadata": {"kind": "figure", "chart": {"title": None, "axes": [{"title": "Growth\nby year"}]}},
            },
            {"mime": {"text/plain": "a  b", "text/markdown": "| a |"}, "metadata": {"kind": "result"}},
        ],
        artifacts=[{"path": "out.csv", "size": 3}],
    ).text
    assert text == "printed\n[figure 1: Growth by year]\n| a |\n[file out.csv, 3 bytes]"


def test_an_execution_that_has_not_ended_says_so() -> None:
    assert execution(status="queued", outcome=None).text == "[queued]"
    assert execution(status="running", outcome=None, stdout="a\n").text == "a\n[running]"
    assert execution(status="failed", outcome="lost").text == "ended with outcome lost"


def test_an_output_is_read_in_the_form_asked_for() -> None:
    output = Output(
        {
            "text/html": "<b>",
            "application/json": {"a": 1},
            "image/png": base64.b64encode(b"png").decode(),
            "image/gif": "?",
        },
        {},
    )
    assert output.read("text/html") == b"<b>"
    assert output.read("application/json") == b'{"a": 1}'
    assert output.png == b"png"
    with pytest.raises(ValueError, match="not base64"):
        output.read("image/gif")


@pytest.mark.parametrize(
    "value",
    [
        {"$type": "decimal", "value": "x"},
        {"$type": "int", "value": "9" * 10_000},
        {"$type": "bytes", "base64": "?"},
        {"$type": "date", "value": None},
        {"$type": "fraction", "value": "1/0"},
        {"$type": "dict", "items": [1]},
        {"$type": "dict", "items": None},
        {"$type": "set", "value": [{"$type": "dict", "items": []}]},
        {"$type": "timedelta", "value": "P9", "seconds": 1e300},
        {"$type": "complex"},
        {"$type": "novel", "repr": "x"},
        {"$type": "ndarray", "data": [1], "truncated": True},
    ],
)
def test_a_value_that_makes_no_sense_is_opaque_and_raises_nothing(value: dict[str, Any]) -> None:
    assert isinstance(decode(value), Opaque)
    assert str(decode(value))


def test_values_of_all_kinds_are_decoded() -> None:
    assert decode({"$type": "int", "value": "-0x10"}) == -16
    assert str(decode({"$type": "float", "value": "nan"})) == "nan"
    assert decode({"$type": "datetime", "value": "NaT"}) is None
    assert decode({"$type": "timedelta", "value": "NaT", "seconds": None}) is None
    stamp = decode({"$type": "datetime", "value": "2024-01-02T03:04:05.123456789+01:00"})
    assert (stamp.microsecond, stamp.utcoffset().total_seconds()) == (123456, 3600)
    assert decode({"a": [{"$type": "set", "value": [[1], 2]}]}) == {"a": [{(1,), 2}]}
    assert decode({"$type": 3}) == {"$type": 3}


def test_artifacts_are_found_by_position_and_path() -> None:
    files = Artifacts([ArtifactRecord(path, 1, "", "", "") for path in ("a", "b/c")])
    assert files[1] is files["b/c"] is files["/data/b/c"]
    assert [file.name for file in files[:2]] == ["a", "c"]
    assert files.paths == ["a", "b/c"]
    assert len(files) == 2
