"""Raw pieces of a body: cut anywhere, out of order, compressed, too large."""

import gzip
from itertools import pairwise
from random import Random

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.core.bodies.encoding import inflate
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.reassembly.segments import Segments
from tests.unit.core.made import body_reader, chunk, encode, last_chunk, sse, whole

BODY_READER = body_reader()
LIMIT = 1 << 20
STREAM = "\ufeff".encode() + sse(chunk(), {"text": "Grüne Äpfel 🍏"}, last_chunk(), "[DONE]")
LINES = b"\n".join(map(encode, [chunk(), chunk(), last_chunk()]))
BODIES = {
    "stream": STREAM,
    "stream with CRLF": STREAM.replace(b"\n", b"\r\n"),
    "stream without end": STREAM[:-20],
    "json": encode(whole()),
    "array": encode([whole("a"), whole("b")]),
    "lines": LINES,
    "gzip": gzip.compress(STREAM, mtime=0),
    "zstd": zstandard.compress(encode(whole())),
    "html": b"<html><body>502</body></html>",
}


def joined(pieces: list[tuple[int, bytes]], cap: int = LIMIT) -> tuple[ResponseFacts, Segments]:
    """Give pieces in the order of the list, each as soon as all before it have come."""
    segments, into = Segments(cap), ResponseFacts()
    come: set[int] = set()
    for order, piece in pieces:
        segments.hold(order, piece)
        come.add(order)
        below = next(n for n in range(len(come) + 1) if n not in come)
        segments.release(below, BODY_READER, into, LIMIT)
    segments.finish(BODY_READER, into, LIMIT)
    return into, segments


def without_orders(into: ResponseFacts) -> ResponseFacts:
    into.id_order = into.model_order = into.finish_order = 0
    into.prompt_order = into.completion_order = into.closing_order = 0
    into.events = 0  # A line that is held as a piece of its own is not counted as one of many.
    into.stats_order = None
    return into


def cut(body: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({0, len(body), *(place % len(body) for place in places)})
    return [body[a:b] for a, b in pairwise(borders)]


@settings(deadline=None, max_examples=200)
@given(
    name=st.sampled_from(sorted(BODIES)),
    places=st.lists(st.integers(0, 10_000), max_size=8),
    seed=st.integers(0, 1000) | st.none(),
)
def test_any_cut_in_any_order_gives_the_response_of_the_whole_body(
    name: str, places: list[int], seed: int | None
) -> None:
    pieces = list(enumerate(cut(BODIES[name], places)))
    if seed is not None:
        Random(seed).shuffle(pieces)
    found, _ = joined(pieces)
    expected, body = ResponseFacts(), inflate(BODIES[name], None, LIMIT)
    assert isinstance(body, bytes)
    assert BODY_READER.fold_body(expected, body) is None
    assert without_orders(found) == without_orders(expected)


def test_every_byte_may_be_a_segment() -> None:
    found, _ = joined(list(enumerate(cut(STREAM, list(range(len(STREAM)))))))
    assert found.stats is not None
    assert found.ended


def test_a_piece_that_is_a_whole_document_inside_a_stream_stays_in_the_stream() -> None:
    first, second = sse(chunk()), encode(last_chunk())
    found, _ = joined([(0, first + b"data: "), (1, second), (2, b"\n\n" + sse("[DONE]"))])
    assert found.stats is not None
    assert found.documents == 2


def test_segments_that_are_documents_of_their_own_are_taken_as_such() -> None:
    found, _ = joined([(n, encode(body)) for n, body in enumerate([chunk(), last_chunk()])])
    assert found.stats is not None
    assert found.documents == 2
    assert not found.truncated


def test_a_body_that_breaks_off_is_truncated() -> None:
    for body in (STREAM[:-60], encode(whole())[:-9], gzip.compress(STREAM)[:-9]):
        found, _ = joined([(0, body[:50]), (1, body[50:])])
        assert found.truncated


def test_nothing_after_the_end_is_looked_at() -> None:
    found, _ = joined([(0, STREAM), (1, sse({"error": {}})), (2, b"{")])
    assert not found.failed
    assert not found.truncated


def test_the_segment_of_the_end_mark_is_named() -> None:
    segments, into = Segments(LIMIT), ResponseFacts()
    for order, piece in enumerate((sse(chunk()), sse("[DONE]"), b"more")):
        segments.hold(order, piece)
    assert segments.release(1, BODY_READER, into, LIMIT) is None
    assert segments.release(3, BODY_READER, into, LIMIT) == 1


@pytest.mark.parametrize(
    "pieces",
    [
        [(0, b"data: "), *((n, b"x" * 50) for n in range(1, 100))],
        [(0, b"{"), *((n, b"x" * 50) for n in range(1, 100))],
        [(n, b"x" * 50) for n in range(1, 100)],
        [(n, b"") for n in range(1, 100)],
        [(n, b"data:\n") for n in range(100)],
    ],
    ids=["a line", "a document", "pieces ahead", "empty pieces ahead", "an event"],
)
def test_whatever_is_held_counts_against_the_cap(pieces: list[tuple[int, bytes]]) -> None:
    found, segments = joined(pieces, cap=1000)
    assert segments.overflowed
    assert found.stats is None


def test_a_long_stream_of_short_events_holds_nothing() -> None:
    segments, into = Segments(1000), ResponseFacts()
    for order in range(2000):
        segments.hold(order, sse(chunk()))
        segments.release(order + 1, BODY_READER, into, LIMIT)
    assert not segments.overflowed
    assert into.documents == 2000


def test_a_bomb_in_pieces_is_not_inflated_beyond_the_cap() -> None:
    bomb = gzip.compress(b"data: x\n\n" + b"\0" * (8 << 20))
    found, _ = joined([(0, bomb)])
    assert found.truncated
    assert found.documents == 0
