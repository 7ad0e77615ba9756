"""Home-made events under names of their own, as the settings map them."""

from typing import Any

import pytest

from consumer.core.envelopes.mapped import MappedEnvelope
from consumer.core.envelopes.native import NativeEnvelope
from consumer.core.response_event import BadEvent, Event, EventKind, Opened
from schemas import BadPayloadReason
from tests.unit.core.made import body_reader, chunk, encode

PATHS = {"request_id": "meta.id", "body": "payload.chunk", "sequence": "n", "labels": "meta.tags"}
ENVELOPE = MappedEnvelope(NativeEnvelope(body_reader()), PATHS)


def opened(value: Any) -> Opened | None:
    return ENVELOPE.open(value if isinstance(value, bytes) else encode(value))


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


@pytest.mark.parametrize("request_id", ["", True, 1.5, [1]])
def test_an_id_of_another_type_is_refused(request_id: Any) -> None:
    found = opened({"meta": {"id": request_id}, "payload": {"chunk": chunk()}})
    assert isinstance(found, BadEvent)
    assert found.reason is BadPayloadReason.INVALID_EVENT


def test_lone_surrogates_and_nan_do_not_cost_the_event() -> None:
    found = opened(
        b'{"meta":{"id":"r\\ud800"},"payload":{"chunk":{"choices":[],"n":NaN}}}',
    )
    assert isinstance(found, Event)
    assert (found.request_id or "").encode()


def test_without_paths_nothing_is_mapped() -> None:
    assert MappedEnvelope(NativeEnvelope(body_reader()), {}).open(b'{"request_id":"r1"}') is None
