"""The native event: every form that its contract allows, and what breaks it."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consumer.core.bodies.shapes import Shape
from consumer.core.envelopes.native import NativeEnvelope
from consumer.core.response_event import (
    CUT_OFF,
    NOT_JSON,
    BadEvent,
    Event,
    EventKind,
    Opened,
    RequestContext,
)
from schemas import BadPayloadReason, SkipReason
from tests.unit.core.made import BEGIN_MS, Json, body_reader, chunk, encode, native, sse, whole

ENVELOPE = NativeEnvelope(body_reader())


def opened(value: bytes) -> Opened | None:
    return ENVELOPE.open(value)


def event(value: bytes) -> Event:
    found = opened(value)
    assert isinstance(found, Event)
    return found


def bad(value: bytes) -> BadPayloadReason:
    found = opened(value)
    assert isinstance(found, BadEvent)
    return found.reason


def test_all_members_are_read() -> None:
    found = event(
        native(
            body=chunk("c1"),
            sequence=3,
            final=True,
            timestamp="2026-01-01T00:00:00.123Z",
            attempt=2,
            engine="vllm",
            model="m",
            instance="pod-1",
            endpoint="/v1/chat/completions",
            status=200,
            labels={"team": "a"},
            unknown=[1],
        )
    )
    assert (found.kind, found.request_id, found.source) == (EventKind.CHUNK, "r1", "")
    assert (found.sequence, found.final, found.attempt) == (3, True, 2)
    assert found.time == BEGIN_MS + 123
    assert not found.failed
    assert found.context == RequestContext("m", "pod-1", "/v1/chat/completions", {"team": "a"})
    assert found.document is not None
    assert (found.document.id, found.shape) == ("c1", Shape.CHUNK)


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b" \n"])
def test_a_byte_order_mark_before_the_event_does_not_matter(before: bytes) -> None:
    assert event(before + native(body=chunk())).kind is EventKind.CHUNK


# Bodies


@pytest.mark.parametrize("text", [encode(chunk()).decode(), f" {encode(chunk()).decode()}\n"])
def test_a_document_may_be_a_string(text: str) -> None:
    found = event(native(body=text))
    assert found.kind is EventKind.CHUNK
    assert found.shape is Shape.CHUNK


@pytest.mark.parametrize("text", [sse(chunk()).decode(), "data: {}", ": ping", '{"a":', '"b"},'])
def test_other_text_is_a_segment_as_it_is(text: str) -> None:
    found = event(native(body=text))
    assert (found.kind, found.segment) == (EventKind.SEGMENT, text.encode())


def test_raw_bytes_are_a_segment_even_if_they_look_like_a_document() -> None:
    """A stream may be cut around the JSON of one of its events."""
    piece = encode(chunk())
    found = event(native(body_base64=b64encode(piece).decode()))
    assert (found.kind, found.segment) == (EventKind.SEGMENT, piece)


@pytest.mark.parametrize("mark", ["[DONE]", " [DONE]\n"])
def test_an_end_mark_is_one_whether_or_not_it_is_called_final(mark: str) -> None:
    assert event(native(body=mark)).kind is EventKind.END
    assert event(native(body=mark, final=True)).kind is EventKind.END


@pytest.mark.parametrize("members", [{}, {"body": None}, {"body": ""}, {"body": "\n"}])
def test_an_event_without_a_body_that_is_final_is_an_end_mark(members: Json) -> None:
    assert event(native(final=True, **members)).kind is EventKind.END


@pytest.mark.parametrize("text", ["", "\n", "\r\n"])
def test_a_blank_line_is_no_end_mark(text: str) -> None:
    """A producer that logs line by line logs the blank lines of a stream as well."""
    found = event(native(body=text))
    assert (found.kind, found.segment) == (EventKind.SEGMENT, text.encode())


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"final": True},
        {"body": ""},
        {"body": "Service Unavailable"},
        {"body": {"detail": "no"}},
        {"body": [7]},
    ],
)
def test_a_status_of_an_error_is_a_failure_whatever_the_body(members: Json) -> None:
    found = event(native(status=503, **members))
    assert found.failed
    assert found.kind is not EventKind.END


def test_an_array_is_a_whole_response() -> None:
    answers = [whole("a"), whole("b")]
    found = event(native(body=answers))
    assert found.kind is EventKind.WHOLE
    assert found.facts is not None
    assert found.facts.choices == 2


def test_a_collected_stream_that_is_final_has_ended() -> None:
    for final in (True, False):
        found = event(native(body=[chunk(), chunk()], final=final))
        assert found.facts is not None
        assert found.facts.ended is final


@pytest.mark.parametrize("value", [b'{"request_id":"r1"}', b'{"request_id":"r1","status":200}'])
def test_an_event_that_says_nothing_is_left_to_other_envelopes(value: bytes) -> None:
    assert opened(value) is None


@pytest.mark.parametrize(
    "value",
    [
        encode(whole() | {"request_id": "r1"}),
        b'{"body":{}}',
        b'[{"request_id":"r1","body":{}}]',
        b'data: {"request_id":"r1","body":{}}',
        b'{"request_id":7,"status":"finished"}',
    ],
)
def test_what_is_no_native_event_is_left_to_other_envelopes(value: bytes) -> None:
    assert opened(value) is None


def test_a_truncated_event_differs_from_a_value_that_is_not_json() -> None:
    assert opened(b'{"request_id":') is CUT_OFF
    assert opened(b'{"request_id":7,"sequence":"x","x":1') is CUT_OFF
    assert opened(b'{"request_id":"r1",body:{}}') is NOT_JSON


# What breaks it


@pytest.mark.parametrize(
    "members",
    [
        {"body": 7},
        {"body": True},
        {"body": {}, "body_base64": "YQ=="},
        {"body": {}, "body_base64": 7},
        {"body_base64": ["YQ=="]},
    ],
)
def test_an_impossible_body_is_refused(members: Json) -> None:
    assert bad(native(**members)) is BadPayloadReason.INVALID_EVENT


@pytest.mark.parametrize("request_id", ["", "x" * 2000, 1.5, True, None, ["r1"], {}])
def test_an_id_that_is_none_or_too_long_is_refused(request_id: Any) -> None:
    value = encode({"request_id": request_id, "body": {}})
    assert bad(value) is BadPayloadReason.INVALID_EVENT


@pytest.mark.parametrize(
    "members",
    [
        {"sequence": "7", "attempt": "1", "final": "true", "status": "503"},
        {"sequence": 7.0, "attempt": 1.0, "final": 1, "status": 503.0},
    ],
)
def test_members_of_another_type_are_read(members: Json) -> None:
    found = event(native(body=chunk("c1"), **members))
    assert (found.sequence, found.attempt, found.final, found.failed) == (7, 1, True, True)
    assert found.document is not None
    assert found.document.id == "c1"
    assert not found.odd


def test_a_request_id_may_be_an_integer() -> None:
    assert event(encode({"request_id": 7, "body": {}})).request_id == "7"


@pytest.mark.parametrize(
    "odd",
    [
        *({"sequence": value} for value in (-1, 2**63, 2.5)),
        *({"sequence": True}, {"sequence": "first"}, {"sequence": []}),
        *({"attempt": -1}, {"attempt": 10**30}, {"attempt": {}}),
        *({"status": "HTTP/1.1 200 OK"}, {"status": -1}, {"status": 1000}, {"status": [200]}),
        *({"timestamp": value} for value in (12, -2, 10**16)),
        *({"timestamp": "yesterday"}, {"timestamp": True}, {"timestamp": [BEGIN_MS]}),
        *({"timestamp": f"{date}T00:00:00Z"} for date in ("0001-01-01", "1970-01-01")),
        {"final": "yes"},
        {"model": 7},
        {"instance": ["pod-1"]},
        {"endpoint": {}},
        {"labels": "a"},
    ],
)
def test_an_odd_member_is_named_and_costs_nothing_else(odd: Json) -> None:
    found, without = event(native(body=chunk(), **odd)), event(native(body=chunk()))
    assert list(found.odd) == list(odd)
    without.raw, without.odd = found.raw, found.odd
    assert encode(found) == encode(without)


def test_labels_are_kept_beside_an_odd_one() -> None:
    found = event(native(body={}, labels={"team": "a", "shard": 7, "tags": []}))
    assert found.context == RequestContext(labels={"team": "a", "shard": "7"})
    assert list(found.odd) == ["labels"]


@pytest.mark.parametrize("value", [0, -1, 0.0, "", "0", None])
def test_a_time_that_is_unset_is_not_odd(value: Any) -> None:
    found = event(native(body={}, timestamp=value))
    assert (found.time, list(found.odd)) == (None, [])


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ({"body": chunk(), "body_base64": ""}, EventKind.CHUNK),
        ({"body": "", "body_base64": "YQ=="}, EventKind.SEGMENT),
    ],
)
def test_an_empty_body_beside_the_other_one_is_unset(members: Json, kind: EventKind) -> None:
    """Programs with fixed members write all of them."""
    assert event(native(**members)).kind is kind


@pytest.mark.parametrize("text", ["*", "YQ", "YQ==\n=", "ä"])
def test_base64_that_does_not_decode_is_refused(text: str) -> None:
    assert bad(native(body_base64=text)) is BadPayloadReason.INVALID_BASE64


def test_arrays_without_a_response_are_distinguished() -> None:
    assert opened(native(body=[])) is SkipReason.EMPTY_BATCH
    assert bad(native(body=[7])) is BadPayloadReason.BODY_NOT_A_RESPONSE


def test_an_event_that_is_nested_too_deep_is_refused() -> None:
    value = b'{"request_id":"r1","body":{"a":' + b"[" * 100_000
    assert bad(value) is BadPayloadReason.TOO_DEEP


# What the strict decoder refuses and the field sends


@pytest.mark.parametrize(
    "odd",
    [
        b'"body":{"id":7,"choices":[{"index":0,"logprobs":NaN}]}',
        b'"body":{"choices":[{"delta":{"content":"\\ud83c"}}]}',
        b'"body":{"choices":[{"delta":{"content":"\xff"}}]}',
        b'"body":{"choices":[{"delta":{"content":"a\x01b"}}]}',
        b'"labels":{"a":"\\ud800"},"body":{"choices":[]}',
        b'"big":1e999,"body":{"choices":[]}',
    ],
)
def test_odd_content_does_not_cost_the_event(odd: bytes) -> None:
    found = event(b'{"request_id":"r1","sequence":4,' + odd + b"}")
    assert (found.kind, found.shape, found.sequence) == (EventKind.CHUNK, Shape.CHUNK, 4)
    encode(found.context)


def test_lone_surrogates_in_ids_and_arrays_are_replaced() -> None:
    """Kept, they would make the encoder of the record raise."""
    found = event(b'{"request_id":"r\\ud800","body":{}}')
    assert (found.request_id or "").encode()
    found = event(b'{"request_id":"r1","body":[{"id":"\\ud800","choices":[],"n":NaN}]}')
    assert found.facts is not None
    encode(found.facts)


typical = st.fixed_dictionaries(
    {},
    optional={
        "body": st.sampled_from([chunk(), whole(), [chunk()], "data: {}", "[DONE]", "", None]),
        "body_base64": st.sampled_from(["", "YQ==", "*", None]),
        "sequence": st.none() | st.integers(),
        "final": st.none() | st.booleans(),
        "timestamp": st.none()
        | st.integers()
        | st.integers(BEGIN_MS - 10, BEGIN_MS + 10)
        | st.floats(BEGIN_MS / 1000, BEGIN_MS)
        | st.sampled_from(["2026-01-01T00:00:00.123Z", "", "0", "x", f"{BEGIN_MS}"]),
        "attempt": st.none() | st.integers(),
        "model": st.none() | st.text(max_size=3),
        "endpoint": st.none() | st.sampled_from(["/v1?key=x", ""]),
        "status": st.none() | st.integers(0, 2000),
        "labels": st.none() | st.dictionaries(st.text(max_size=2), st.text(max_size=2)),
    },
)


@settings(deadline=None)
@given(given_members=typical)
def test_what_the_strict_decoder_accepts_is_read_leniently_as_well(given_members: Json) -> None:
    """A member that it refuses brings an event to the lenient way, with the other members."""
    found = opened(native(**given_members)), opened(native(**given_members, instance=7))
    for one in found:
        if isinstance(one, Event):
            one.raw, one.odd = b"", [name for name in one.odd if name != "instance"]
    assert encode(found[0]) == encode(found[1])


members = st.dictionaries(
    st.sampled_from(
        ["body", "body_base64", "sequence", "final", "timestamp", "attempt", "status", "labels"]
    ),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from([chunk(), whole(), [], [chunk()], {}, {"a": "b"}, "data: {}", "[DONE]"]),
    max_size=5,
)


@settings(deadline=None, max_examples=200)
@given(given_members=members, noise=st.binary(max_size=2), at=st.integers(0, 200))
@example(given_members={"body": chunk()}, noise=b"\xff", at=30)
def test_no_event_makes_it_raise(given_members: Json, noise: bytes, at: int) -> None:
    value = native(**given_members)
    for text in (value, value[:at] + noise + value[at:]):
        found = opened(text)
        if isinstance(found, Event):
            assert found.request_id
            encode((found.request_id, found.context, found.segment, found.time, found.sequence))
