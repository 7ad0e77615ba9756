"""Values that are a body and nothing else, and what nothing else understood."""

import gzip

import pytest

from consumer.core.bodies.shapes import Shape
from consumer.core.message import Headers
from consumer.core.response_event import BadEvent, Event, EventKind, RequestContext
from schemas import BadPayloadReason, SkipReason
from tests.unit.core.made import TRACE, chunk, encode, last_chunk, opened, sse, whole

STREAM = sse(chunk(), last_chunk(), "[DONE]")


def event(value: bytes, headers: Headers | None = None) -> Event:
    found = opened(value, headers)
    assert isinstance(found, Event)
    return found


@pytest.mark.parametrize("value", [STREAM, encode(whole()), gzip.compress(STREAM, mtime=0)])
def test_a_whole_body_is_a_response_under_its_own_id(value: bytes) -> None:
    found = event(value)
    assert (found.kind, found.request_id, found.source) == (EventKind.WHOLE, "c1", "")
    assert found.facts is not None
    assert found.facts.stats is not None


def test_a_body_without_an_id_is_a_response_all_the_same() -> None:
    found = event(encode({"choices": [{"finish_reason": "stop"}], "usage": {}}))
    assert (found.kind, found.request_id) == (EventKind.WHOLE, None)


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\n "])
def test_a_chunk_is_part_of_the_stream_that_its_id_names(before: bytes) -> None:
    found = event(before + encode(chunk()))
    assert (found.kind, found.shape, found.request_id) == (EventKind.CHUNK, Shape.CHUNK, "c1")


def test_the_id_of_a_chunk_may_stand_in_its_meta_information() -> None:
    value = encode({"text": "x", "meta_info": {"id": "g1", "finish_reason": None}})
    assert event(value).request_id == "g1"


def test_a_chunk_without_an_id_cannot_be_placed() -> None:
    found = opened(encode(chunk(None)))
    assert isinstance(found, BadEvent)
    assert found.reason is BadPayloadReason.NO_REQUEST_ID


@pytest.mark.parametrize("value", [b"[DONE]", b"data: [DONE]\n\n"])
def test_an_end_mark_alone_is_no_error(value: bytes) -> None:
    """A fleet that logs bare chunks logs one of them per request."""
    assert opened(value) is SkipReason.ORPHAN_END


@pytest.mark.parametrize(
    "value", [b"", b" \n", b": ping\n\n", b"event: x", b"data:\n\n", b"id: 7\n"]
)
def test_what_stands_between_the_events_of_a_stream_is_skipped(value: bytes) -> None:
    """A log of raw server-sent events has as many blank lines as events."""
    assert opened(value) is SkipReason.KEEP_ALIVE


def test_the_chunk_of_a_content_filter_names_nothing_and_is_skipped() -> None:
    assert opened(encode(chunk("") | {"choices": []})) is SkipReason.KEEP_ALIVE
    assert isinstance(opened(encode(last_chunk(""))), BadEvent)


@pytest.mark.parametrize("field", ["data: ", "data:"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n\r\n"])
def test_a_single_event_is_a_chunk_of_a_stream(field: str, end: str) -> None:
    found = event(f"{field}{encode(chunk()).decode()}{end}".encode())
    assert (found.kind, found.request_id, found.final) == (EventKind.CHUNK, "c1", False)


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b"\ndata: [DONE]", b"\ndata:[DONE]\n"])
def test_the_end_marker_may_come_with_the_last_event(end: bytes) -> None:
    found = event(b"data: " + encode(last_chunk()) + b"\n" + end)
    assert (found.kind, found.final) == (EventKind.CHUNK, True)


def test_several_events_are_a_whole_stream() -> None:
    assert event(sse(chunk(), last_chunk())).kind is EventKind.WHOLE


def test_the_trace_is_taken_from_the_headers() -> None:
    headers: Headers = [("TraceParent", TRACE.encode())]
    assert event(STREAM, headers).context == RequestContext(traceparent=TRACE)
    assert event(encode(chunk()), headers).context == RequestContext(traceparent=TRACE)


@pytest.mark.parametrize(
    "trace",
    [
        TRACE[:-4] + "AB-01",
        TRACE + "-more",
        "ff" + TRACE[2:],
        "00-" + "0" * 32 + TRACE[35:],
        TRACE[:36] + "0" * 16 + "-01",
        TRACE[:-1],
        TRACE + "\n",
        "01" + TRACE[2:] + "-" + "x" * 201,
        "",
    ],
)
def test_a_trace_that_is_not_valid_is_left_out(trace: str) -> None:
    assert event(STREAM, [("traceparent", trace.encode())]).context is None


@pytest.mark.parametrize("trace", ["01" + TRACE[2:], "cc" + TRACE[2:] + "-what-comes-later"])
def test_a_trace_of_a_later_version_is_taken(trace: str) -> None:
    assert event(STREAM, [("traceparent", trace.encode())]).context == RequestContext(
        traceparent=trace
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (encode(whole())[:-5], BadPayloadReason.INVALID_JSON),
        (b"{]", BadPayloadReason.INVALID_JSON),
        (b'{"a":1}', BadPayloadReason.UNRECOGNISED_SHAPE),
        (b"hello", BadPayloadReason.UNRECOGNISED_FORMAT),
        (b"\x1f\x8b\x08x", BadPayloadReason.CORRUPT_ENCODING),
        (b'{"a":' * 400, BadPayloadReason.INVALID_JSON),
        (b'{"a name of sixteen":' * 10_000, BadPayloadReason.TOO_DEEP),
        (b'{"a":' * 100_000, BadPayloadReason.TOO_DENSE),
    ],
)
def test_what_nothing_understands_is_refused_by_name(
    value: bytes, reason: BadPayloadReason
) -> None:
    found = opened(value)
    assert isinstance(found, BadEvent)
    assert found.reason is reason


def test_a_label_without_magic_is_followed() -> None:
    found = opened(b"\x0b\x80\x00", [("Content-Encoding", b"br")])
    assert isinstance(found, BadEvent)
    assert found.reason is BadPayloadReason.UNSUPPORTED_ENCODING


def test_a_response_of_another_api_is_skipped() -> None:
    assert opened(b'{"object":"list","data":[]}') is SkipReason.UNRELATED_BODY
