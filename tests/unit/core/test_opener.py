"""The envelope of a message: recognised from the message, or fixed by the settings."""

import pytest

from consumer.core.message import Headers
from consumer.core.response_event import BadEvent, Event, Opened
from schemas import BadPayloadReason, SkipReason
from tests.unit.core.made import (
    chunk,
    cloudevent,
    cloudevent_headers,
    encode,
    last_chunk,
    message,
    native,
    opened,
    pipeline,
    sse,
    whole,
)

STREAM = sse(chunk("body"), last_chunk("body"), "[DONE]")
STRUCTURED: Headers = [("Content-Type", b"application/cloudevents+json; charset=UTF-8")]


def request_id(found: Opened | list[Opened]) -> str | None:
    assert isinstance(found, Event), found
    return found.request_id


@pytest.mark.parametrize(
    ("value", "headers", "expected"),
    [
        (native("r1", body=whole("body")), None, "r1"),
        (native("r1", body=whole("body")), STRUCTURED, "r1"),  # The event states it itself.
        (STREAM, cloudevent_headers(), "e1"),
        (encode(cloudevent(data=whole("body"))), STRUCTURED, "e1"),
        (encode(cloudevent(data=whole("body"))), None, "e1"),
        (encode(cloudevent(data=whole("body"))), [*STRUCTURED, *cloudevent_headers(id="no")], "e1"),
        (STREAM, None, "body"),
        (encode(whole("body")), [("content-type", b"text/event-stream")], "body"),
        (encode(whole("body") | {"request_id": "other"}), None, "body"),
        (STREAM, cloudevent_headers()[:3], "body"),
        (encode(whole("body") | {"specversion": "1.0"}), None, "body"),
    ],
)
def test_the_envelope_is_recognised(value: bytes, headers: Headers | None, expected: str) -> None:
    assert request_id(opened(value, headers)) == expected


def test_a_batch_is_recognised_with_and_without_its_label() -> None:
    batch = encode([cloudevent(data=whole()), cloudevent(data=whole())])
    label: Headers = [("content-type", b"application/cloudevents-batch+json")]
    for headers in (None, label):
        found = opened(batch, headers)
        assert isinstance(found, list)
        assert len(found) == 2


def test_a_message_without_a_value_is_a_tombstone_and_an_empty_one_is_not() -> None:
    assert opened(None, cloudevent_headers()) is SkipReason.TOMBSTONE
    assert opened(b"") is SkipReason.KEEP_ALIVE
    assert isinstance(opened(b"", cloudevent_headers()), Event)


def test_a_label_over_something_else_is_not_tried_otherwise() -> None:
    found = opened(STREAM, STRUCTURED)
    assert isinstance(found, BadEvent)
    assert found.reason is BadPayloadReason.INVALID_JSON


# Pinned

EVENT, BODY = native("r1", body=whole("body")), encode(whole("body"))
LITELLM = encode(
    {"litellm_call_id": "call", "call_type": "x", "startTime": 0, "response": whole("body")}
)


@pytest.mark.parametrize(
    ("envelope", "value", "headers", "expected"),
    [
        ("native", EVENT, None, "r1"),
        ("cloudevents", STREAM, cloudevent_headers(), "e1"),
        ("cloudevents", encode(cloudevent(data=whole())), STRUCTURED, "e1"),
        ("cloudevents", encode(cloudevent(data=whole())), None, "e1"),
        ("body", STREAM, cloudevent_headers(), "body"),
        ("litellm", LITELLM, None, "call"),
        ("litellm", encode({"message": LITELLM.decode()}), None, "call"),
        ("body", BODY, STRUCTURED, "body"),
    ],
)
def test_the_pinned_envelope_is_read(
    envelope: str, value: bytes, headers: Headers | None, expected: str
) -> None:
    assert request_id(opened(value, headers, envelope=envelope)) == expected


@pytest.mark.parametrize(
    ("envelope", "value", "reason"),
    [
        ("native", BODY, BadPayloadReason.UNRECOGNISED_SHAPE),
        ("native", STREAM, BadPayloadReason.UNRECOGNISED_FORMAT),
        ("native", b" ", BadPayloadReason.EMPTY_VALUE),
        ("cloudevents", EVENT, BadPayloadReason.UNRECOGNISED_SHAPE),
        ("cloudevents", STREAM, BadPayloadReason.UNRECOGNISED_FORMAT),
        ("cloudevents", b"", BadPayloadReason.EMPTY_VALUE),
        ("litellm", BODY, BadPayloadReason.UNRECOGNISED_SHAPE),
        ("litellm", EVENT, BadPayloadReason.UNRECOGNISED_SHAPE),
        ("native", LITELLM, BadPayloadReason.UNRECOGNISED_SHAPE),
    ],
)
def test_nothing_but_the_pinned_envelope_is_read(
    envelope: str, value: bytes, reason: BadPayloadReason
) -> None:
    found = opened(value, envelope=envelope)
    assert isinstance(found, BadEvent)
    assert found.reason is reason


@pytest.mark.parametrize(
    ("value", "headers", "paths", "expected"),
    [
        (native("r1", body=whole("body")), None, {}, "native"),
        (native("r1", body=chunk(), sequence=-1), None, {}, "native"),
        (
            encode({"id": "r1", "of": whole("body")}),
            None,
            {"request_id": "id", "body": "of"},
            "paths",
        ),
        (STREAM, cloudevent_headers(), {}, "cloudevents"),
        (encode(cloudevent(data=whole("body"))), None, {}, "cloudevents"),
        (STREAM, None, {}, "body"),
        (b"{broken", None, {}, "unknown"),
        (None, None, {}, "unknown"),
    ],
)
def test_the_name_of_the_envelope_is_returned(
    value: bytes | None, headers: Headers | None, paths: dict[str, str], expected: str
) -> None:
    core = pipeline(paths=paths)
    assert core.opener.open(message(value, headers=headers))[0] == expected
