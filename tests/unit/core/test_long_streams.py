"""Long streams are read in one call of the decoder, with the result of event after event."""

from itertools import pairwise
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.core.bodies import body_reader as body_reader_module
from consumer.core.bodies import content_events
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.reassembly.segments import Segments
from tests.unit.core.made import body_reader, chunk, encode, last_chunk

BODY_READER = body_reader()


def read(body: bytes) -> tuple[Any, bytes]:
    facts = ResponseFacts()
    reason = BODY_READER.fold_body(facts, body)
    return reason, msgspec.json.encode(facts)


def joined(pieces: list[bytes]) -> bytes:
    """Read a stream that comes in pieces."""
    segments, facts = Segments(1 << 20), ResponseFacts()
    for order, piece in enumerate(pieces):
        segments.hold(order, piece)
        segments.release(order + 1, BODY_READER, facts, 1 << 20)
    segments.finish(BODY_READER, facts, 1 << 20)
    return msgspec.json.encode(facts)


def slowly(body: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, bytes]:
    with monkeypatch.context() as patch:
        patch.setattr(body_reader_module, "content_range", lambda _: None)
        return read(body)


@pytest.fixture(scope="module", autouse=True)
def short() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_events, "_LONG_STREAM", 0)
        yield patch


def content(number: int = 0, **members: Any) -> bytes:
    return encode(chunk() | {"created": number, "usage": None} | members)


EVENT = b"data: " + content() + b"\n\n"
OTHERS = [
    EVENT.replace(b'"x"', b'"%b"' % text) for text in (b"", b"y\\n", b'\\"', b"\xc3\xa4", b"a, b")
]
LAST = [
    b"data: " + encode(chunk(finish="stop")) + b"\n\n",
    b"data: " + encode(last_chunk()) + b"\n\n",
    b"data: [DONE]\n\n",
]
MEMBERS: list[dict[str, Any]] = [
    {"id": "c2"},
    {"id": None},
    {"id": 7},
    {"model": "other"},
    {"model": 7},
    {"error": {"message": "x"}},
    {"error": None},
    {"usage": {"completion_tokens": 7}},
    {"choices": []},
    {"choices": [{"index": 1}]},
    {"choices": [{"index": 0, "finish_reason": "length"}]},
    {"choices": [{"index": 0, "speculative_decoding": {"num_spec_steps": 1}}]},
    {"metrics": {"speculative_decoding": {}}},
    {"object": "chat.completion"},
    {"object": "text_completion"},
    {"object": "other.chunk"},
    {"type": "response.completed"},
    {"meta_info": {"id": "c9"}},
]
ODD = [
    b"",
    EVENT.replace(b'"x"', b'"a\\"'),
    EVENT.replace(b'"x"', b'"a","b"'),
    EVENT.replace(b'"x"', b'"","b":"'),
    EVENT.replace(b'"x"', b'"","finish_reason":"stop","b":"y"'),
    EVENT.replace(b'"created":0', b'"created":1'),
    EVENT.replace(b'"c1"', b'"c12"'),
    EVENT.replace(b'"c1"', b'"c1\\n"'),
    EVENT.replace(b'"content"', b'"context"'),
    EVENT.replace(b'"model"', b'"id"'),
    EVENT[:-1],
    EVENT[:-2],
    EVENT.replace(b"data: ", b"data:"),
    EVENT.replace(b"data: ", b"data:  "),
    EVENT.replace(b"\n", b"\r\n"),
    EVENT.replace(b"\n", b"\r"),
    EVENT.replace(b"{", b"{\n"),
    EVENT.replace(b"{", b"{\r"),
    EVENT.replace(b'"x"', b'"\n\ndata:"'),
    EVENT.replace(b'"x"', b'"a\\n\\ndata: \\"usage\\":{}"'),
    EVENT.replace(b'"x"', b'"\xff"'),
    EVENT.replace(b'"x"', b'"\x01"'),
    EVENT.replace(b'"x"', b'"\\ud800"'),
    EVENT.replace(b'"x"', b'"\\q"'),
    EVENT[:-2] + b"," + content() + b"\n\n",
    EVENT + b"," + content() + b"\n\n",
    EVENT[:-2] + b"\n,\n" + content() + b"\n\n",
    EVENT[:-1] + EVENT,
    EVENT[len(b"data: ") :],
    EVENT[:-1] + EVENT[len(b"data: ") :],
    EVENT[:40] + b"\n\n" + EVENT[40:],
    EVENT[:40] + b"\ndata: " + EVENT[40:],
    EVENT + b"\n\n",
    b"\n" + EVENT,
    b": ping\n\n" + EVENT,
    b"event: error\n" + EVENT,
    b"event: error\n\n" + EVENT,
    b"data\n\n",
    b"data:\n\n",
    b"data: 7\n\n",
    b"data: null\n\n",
    b"data: {}\n\n",
    b"data: ]\n\n",
    b"data: garbage\n\n",
    *LAST,
    *(b"data: " + content(**members) + b"\n\n" for members in MEMBERS),
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("at", [0, 1, 4])
def test_one_odd_event(odd: bytes, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for last in range(4):
        body = EVENT * at + odd + EVENT + OTHERS[last] + EVENT + b"".join(LAST[last:])
        assert read(body) == slowly(body, monkeypatch), body
        assert read(body[:-1]) == slowly(body[:-1], monkeypatch), body


@settings(deadline=None, max_examples=300)
@given(
    events=st.lists(st.sampled_from([EVENT] * 8 + OTHERS * 4 + ODD), max_size=14),
    noise=st.none() | st.tuples(st.integers(0, 3000), st.binary(max_size=3), st.integers(0, 4)),
)
def test_any_stream(events: list[bytes], noise: tuple[int, bytes, int] | None) -> None:
    body = b"".join(events)
    if noise is not None:
        at, piece, cut = noise
        body = body[:at] + piece + body[at + cut :]
    with pytest.MonkeyPatch.context() as patch:
        assert read(body) == slowly(body, patch)


@settings(deadline=None, max_examples=300)
@given(
    events=st.lists(st.sampled_from([EVENT] * 8 + OTHERS * 4 + ODD), max_size=14),
    cuts=st.lists(st.integers(0, 3000), max_size=4),
    between=st.booleans(),
)
def test_any_stream_in_pieces(events: list[bytes], cuts: list[int], *, between: bool) -> None:
    body = b"".join(events)
    if between:  # Usually: there, the beginning of a piece can be recognised.
        cuts = [body.find(b"data:", cut) for cut in cuts]
    borders = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    pieces = [body[a:b] for a, b in pairwise(borders)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_reader_module, "content_range", lambda _: None)
        expected = joined(pieces)
    assert joined(pieces) == expected


@pytest.mark.parametrize("key", [b"id", b"object", b"model", b"usage", b"content", b"x"])
@pytest.mark.parametrize("form", [b'"%b":"%b"', b'"%b":{"%b":1}', b'"%b":{"a":"%b"}'])
def test_a_string_that_changes_at_any_place(
    key: bytes, form: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (b"{", b'"choices":[{', b'"delta":{', b'"usage":null,'):
        for texts in ((b"c1", b"c2", b"c1"), (b"usage", b"x", b"error"), (b"", b"id", b"a\\")):
            events = [EVENT.replace(place, place + form % (key, text) + b",") for text in texts]
            body = EVENT + b"".join(events) + b"".join(LAST)
            assert read(body) == slowly(body, monkeypatch), body


@pytest.mark.parametrize("others", [[EVENT], [EVENT, *OTHERS]])
def test_content_is_passed_over(others: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"".join(others * 50) + b"".join(LAST)
    expected = slowly(body, monkeypatch)
    read_one = mock.Mock(wraps=BODY_READER.document_reader.read)
    monkeypatch.setattr(BODY_READER.document_reader, "read", read_one)
    assert read(body) == expected
    assert joined([body]) == expected[1]
    assert read_one.call_count < 20
