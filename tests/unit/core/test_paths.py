"""Events of a fleet's own shape, read by the paths that the settings map."""

from typing import Any

import pytest

from consumer.core.response_event import BadEvent, Event, EventKind, Opened
from consumer.settings.sources import SettingsError, load
from schemas import BadPayloadReason, SkipReason
from tests.unit.core.made import (
    Json,
    chunk,
    encode,
    last_chunk,
    message,
    native,
    outcomes_of,
    pipeline,
    short,
)

PATHS = {
    "request_id": "meta.id",
    "body": "payload.chunk",
    "sequence": "n",
    "final": "last",
    "labels": "meta.tags",
}
OPENER = pipeline(paths=PATHS).opener


def opened(value: Any) -> Opened | list[Opened] | None:
    """Return the events of a value that the paths match; None for any other."""
    name, found = OPENER.open(message(value if isinstance(value, bytes) else encode(value)))
    return found if name == "paths" else None


def own_event(number: Any, body: Json | str, **members: Any) -> bytes:
    return encode({"meta": {"id": "r1"}, "n": number, "payload": {"chunk": body}, **members})


def short_outcomes(*values: bytes) -> list[str]:
    return [short(result) for result in outcomes_of(values, paths=PATHS)]


STREAM = [own_event(0, chunk()), own_event(1, last_chunk()), own_event(2, "[DONE]", last=True)]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
def test_a_stream_gives_a_record_and_is_ordered_by_the_mapped_sequence(
    order: tuple[int, ...],
) -> None:
    assert short_outcomes(*(STREAM[number] for number in order)) == ["published"]


def test_a_message_without_the_mapped_members_is_recognised_as_without_a_mapping() -> None:
    assert short_outcomes(native("r2", body=last_chunk(), final=True)) == ["published"]


def test_a_mapping_of_an_unknown_member_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsError, match="paths"):
        load({}, {"ACCEPTANCE_PATHS": "rid=meta.rid"}, None, require=())


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\n"])
def test_mapped_members_make_a_native_event(before: bytes) -> None:
    value = {"meta": {"id": "r1", "tags": {"a": "b"}}, "payload": {"chunk": chunk()}, "n": 3}
    found = opened(before + encode(value))
    assert isinstance(found, Event)
    assert (found.kind, found.request_id, found.sequence) == (EventKind.CHUNK, "r1", 3)
    assert found.context is not None
    assert found.context.labels == {"a": "b"}


def test_an_id_that_is_a_number_is_read_as_text() -> None:
    found = opened({"meta": {"id": 7}, "payload": {"chunk": chunk()}})
    assert isinstance(found, Event)
    assert found.request_id == "7"


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"meta": {"id": None}, "payload": {"chunk": chunk()}},
        {"meta": ["id"], "payload": {"chunk": chunk()}},
        {"request_id": "r1", "body": chunk()},
        [{"meta": {"id": "r1"}}],
        b"{",
        b"",
        b'{"meta":' + b"[" * 100_000,
    ],
)
def test_what_lacks_the_mapped_id_is_left_to_other_envelopes(value: Any) -> None:
    assert opened(value) is None


@pytest.mark.parametrize(
    "value",
    [{"meta": {"id": wrong}, "payload": {"chunk": chunk()}} for wrong in ("", True, 1.5, [1])],
)
def test_an_id_of_another_type_is_refused(value: Any) -> None:
    found = opened(value)
    assert isinstance(found, BadEvent)
    assert found.reason is BadPayloadReason.INVALID_EVENT


def test_lone_surrogates_and_nan_do_not_cost_the_event() -> None:
    found = opened(
        b'{"meta":{"id":"r\\ud800"},"payload":{"chunk":{"choices":[],"n":NaN}}}',
    )
    assert isinstance(found, Event)
    assert (found.request_id or "").encode()


def first(value: Json, **paths: str) -> tuple[str, Opened | list[Opened]]:
    return pipeline(paths=paths).opener.open(message(encode(value)))


def test_without_a_mapped_request_id_that_of_the_body_counts() -> None:
    name, found = first({"answer": chunk("c"), "n": 1}, body="answer", sequence="n")
    assert isinstance(found, Event)
    assert (name, found.kind, found.request_id) == ("paths", EventKind.CHUNK, "c")
    assert found.sequence == 1


def test_each_entry_of_a_mapped_array_is_an_event() -> None:
    value: Json = {
        "host": "pod-1",
        "events": [{"id": "a", "of": chunk()}, {"id": "b", "of": chunk()}],
    }
    name, found = first(value, each="events", request_id="id", body="of", instance="host")
    assert isinstance(found, list)
    events = [one for one in found if isinstance(one, Event)]
    assert (name, [one.request_id for one in events]) == ("paths", ["a", "b"])
    assert {one.context.instance for one in events if one.context} == {"pod-1"}


@pytest.mark.parametrize("events", [{"of": chunk()}, "text", 1, None])
def test_a_mapped_array_that_is_none_leaves_the_event_unrecognised(events: Any) -> None:
    _, found = first({"events": events, "x": 1}, each="events", body="of")
    assert isinstance(found, BadEvent)
    assert found.reason is BadPayloadReason.UNRECOGNISED_SHAPE


def test_a_mapped_event_may_be_wrapped_and_one_of_several() -> None:
    entry = {"meta": {"id": "r1"}, "payload": {"chunk": chunk()}}
    found = opened({"message": encode([entry, entry]).decode()})
    assert isinstance(found, list)
    assert [one.request_id for one in found if isinstance(one, Event)] == ["r1", "r1"]


def test_a_mapped_path_may_lead_through_text() -> None:
    value: Json = {"log": encode({"id": "r1", "of": chunk()}).decode()}
    name, found = first(value, request_id="log.id", body="log.of")
    assert isinstance(found, Event)
    assert (name, found.request_id) == ("paths", "r1")


@pytest.mark.parametrize("as_text", [False, True])
def test_a_mapped_answer_of_another_api_is_skipped_under_its_name(*, as_text: bool) -> None:
    answer: Json = {"created_at": "2026-01-01T00:00:00Z", "response": "x", "done": True}
    body = encode(answer).decode() if as_text else answer
    event = encode({"meta": {"id": "r1"}, "payload": {"chunk": body}})
    partition = pipeline(paths=PATHS).partition("t", 0, 0)
    assert partition.feed(message(event)).reason is SkipReason.OLLAMA
