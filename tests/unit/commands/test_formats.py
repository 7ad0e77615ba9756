"""`formats`: the list, what a capture holds, and the paths that would fit."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from consumer.commands import cli
from consumer.commands.formats.suggestion import suggest_paths
from consumer.commands.formats.trial import tried
from consumer.core.envelopes.formats import format_names
from tests.unit.core.made import (
    Json,
    body_reader,
    chunk,
    cloudevent,
    cloudevent_headers,
    encode,
    message,
    native,
    outcomes_of,
    pipeline,
    short,
    sse,
    whole,
)


def run(*args: str) -> Result:
    return CliRunner().invoke(cli.main, ["formats", *args])


def suggested(event: Any) -> Json | None:
    return suggest_paths(body_reader(), event if isinstance(event, bytes) else encode(event))


# The list


def test_the_list_names_every_format() -> None:
    lines = run().stdout.splitlines()
    named = [line.split()[1].rstrip(":") for line in lines if line.startswith("format ")]
    assert named == list(format_names())


def test_the_list_as_json_says_how_a_format_is_switched_on_and_what_survives() -> None:
    found = {one["name"]: one for one in map(json.loads, run("--json").stdout.splitlines())}
    assert list(found) == list(format_names())
    assert found["litellm"]["tried_on"] == ["LiteLLM proxy 1.108.7"]
    assert "--export-metrics-to-file" in found["sglang_metrics"]["switch_on"]


# What a capture holds


def test_an_event_shows_what_its_members_give_and_no_content(tmp_path: Path) -> None:
    capture = tmp_path / "capture.jsonl"
    capture.write_bytes(native("r1", body=whole(), status=500, timestamp=1_767_225_600) + b"\n")
    [event] = map(json.loads, run("--try", str(capture), "--json").stdout.splitlines())
    assert event["bytes"] == len(native("r1", body=whole(), status=500, timestamp=1_767_225_600))
    del event["bytes"]
    assert event == {
        "message": 1,
        "entry": 0,
        "format": "native",
        "steps": [],
        "outcome": "event",
        "detail": None,
        "request_id": "r1",
        "model": "demo-8b",
        "status": "failed",
        "time": "2026-01-01T00:00:00.000Z",
        "body": "whole",
        "suggested_paths": None,
    }


def test_each_entry_of_a_message_is_an_event_of_its_own() -> None:
    value = encode({"log": encode([whole("a"), whole("b")]).decode()})
    events = list(tried(pipeline(), [message(value)]))
    assert [(one.message, one.entry, one.request_id) for one in events] == [
        (1, 0, "a"),
        (1, 1, "b"),
    ]
    assert events[0].steps[0] == "member log"


def test_a_skipped_message_says_why() -> None:
    [event] = tried(pipeline(), [message(None)])
    assert (event.outcome, event.request_id) == ("skipped(tombstone)", None)


def test_the_suggestion_is_printed_once_for_all_messages_that_it_fits(tmp_path: Path) -> None:
    capture = tmp_path / "capture.jsonl"
    capture.write_bytes(b"".join(encode({"rid": str(n), "out": whole()}) + b"\n" for n in range(3)))
    lines = run("--try", str(capture)).stdout.splitlines()
    assert lines[-4:] == ["", "[paths]", 'body = "out"', 'request_id = "rid"']
    assert "No format fits message 1 and 2 more. This would read it:" in lines


def test_a_capture_without_any_response_is_said_to_have_none(tmp_path: Path) -> None:
    capture = tmp_path / "capture.jsonl"
    capture.write_bytes(b'{"a":1}\nplain text\n')
    lines = run("--try", str(capture)).stdout.splitlines()
    assert lines[-2].startswith("No format fits message 1 and 1 more. No member holds a response")


@pytest.mark.parametrize("body", [{"result": whole()}, encode({"result": whole()}).decode()])
def test_a_native_event_around_a_deeper_response_is_no_event(body: Any) -> None:
    value = encode({"request_id": "r", "body": body})
    [event] = tried(pipeline(), [message(value)])
    paths = {"body": "body.result", "request_id": "request_id"}
    assert (event.format, event.outcome) == ("native", "bad_payload(body_not_a_response)")
    assert event.suggested_paths == paths
    assert [short(one) for one in outcomes_of([value], paths=paths)] == ["published"]


def test_no_setting_is_suggested_where_headers_make_a_cloudevent() -> None:
    deeper = encode({"result": whole()})
    [event] = tried(pipeline(), [message(deeper, headers=cloudevent_headers())])
    assert (event.format, event.suggested_paths) == ("cloudevents", None)
    [event] = tried(pipeline(), [message(encode(cloudevent(data={"result": whole()})))])
    assert event.suggested_paths == {"body": "data.result", "request_id": "id"}


def test_a_native_event_of_another_api_is_skipped() -> None:
    value = encode({"request_id": "r", "body": {"object": "list", "data": [{"embedding": []}]}})
    [event] = tried(pipeline(), [message(value)])
    assert event.outcome == "skipped(embeddings)"


def test_a_recognised_message_needs_no_suggestion() -> None:
    [event] = tried(pipeline(), [message(encode(whole()))])
    assert (event.format, event.suggested_paths) == ("body", None)


# The paths that would fit


@pytest.mark.parametrize(
    ("event", "paths"),
    [
        ({"out": whole()}, {"body": "out"}),
        ({"a": {"b": sse(chunk()).decode()}}, {"body": "a.b"}),
        ({"a": encode({"b": whole()}).decode()}, {"body": "a.b"}),
        ({"raw": b64encode(encode(whole())).decode()}, {"body_base64": "raw"}),
        ({"http.body": whole(), "trace.id": "x"}, {"body": "http.body", "request_id": "trace.id"}),
        (
            {"items": [{"out": whole()}], "id": "x"},
            {"each": "items", "body": "out", "request_id": "id"},
        ),
        ([{"out": whole()}], {"body": "out"}),
        (json.dumps({"out": whole()}, indent=2).encode(), {"body": "out"}),
        (encode({"out": whole()}) + b"\n" + encode({"out": whole()}), {"body": "out"}),
    ],
)
def test_a_member_that_holds_a_response_is_found(event: Any, paths: Json) -> None:
    assert suggested(event) == paths


@pytest.mark.parametrize("is_base64", [True, False])
def test_one_setting_reads_bodies_that_are_base64_and_not(*, is_base64: bool) -> None:
    body = encode(whole("c7"))
    event = encode(
        {
            "isBase64Encoded": is_base64,
            "out": b64encode(body).decode() if is_base64 else body.decode(),
        }
    )
    paths = suggested(event)
    assert paths == {"body": "out", "base64_if": "isBase64Encoded"}
    assert [short(one) for one in outcomes_of([event], paths=paths)] == ["published"]


def test_a_mark_that_contradicts_the_body_is_not_suggested() -> None:
    body = b64encode(encode(whole())).decode()
    assert suggested({"base64": False, "out": body}) == {"body_base64": "out"}


def test_the_members_beside_the_body_are_found_by_name_and_value() -> None:
    event = {
        "meta": {"Request-Id": "r1", "modelName": "m", "statusCode": "200", "ts": 1_767_225_600.5},
        "id": 7,
        "status": "done",
        "time": "soon",
        "out": whole(),
    }
    assert suggested(event) == {
        "body": "out",
        "request_id": "meta.Request-Id",
        "model": "meta.modelName",
        "status": "meta.statusCode",
        "timestamp": "meta.ts",
    }


@pytest.mark.parametrize(
    "event", [{"a": 1}, {"out": {"error": {"message": "no"}}}, [], "text", b"{", {"out": "data: x"}]
)
def test_nothing_is_suggested_where_no_member_holds_a_response(event: Any) -> None:
    assert suggested(event) is None


def test_lone_surrogates_are_neither_times_nor_names() -> None:
    event = json.dumps({"\ud800": {"out": whole()}, "time": "\ud800"}).encode()
    assert suggested(event) == {"body": "?.out"}


def test_what_is_suggested_reads_the_event() -> None:
    event = encode({"items": [{"out": encode(whole("c7")).decode()}], "when": 1_767_225_600})
    paths = suggested(event)
    assert [short(one) for one in outcomes_of([event], paths=paths)] == ["published"]
