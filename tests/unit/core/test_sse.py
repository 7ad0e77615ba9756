"""The parser of server-sent events: line ends, cuts, and what the field adds to the standard."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consumer.core.bodies.sse import ServerSentEvent, SSEDecoder, looks_like_sse

PIECES = [
    b"data: a\n",
    b"data:b",
    b"data",
    b"data:",
    b"event: error",
    b"event:",
    b"event\n",
    b"id: 7",
    b"retry: 10",
    b": note",
    b"data: : text",
    b"data: [DONE]",
    b"data: \xe2\x80\xa8\x85",
    b"\xef\xbb\xbf",
    b"\n",
    b"\r",
    b"\r\n",
    b"\x0b\x0c\x1c",
    b" ",
]
streams = st.lists(st.sampled_from(PIECES) | st.binary(max_size=3), max_size=20).map(b"".join)


def parsed(*pieces: bytes) -> list[ServerSentEvent]:
    decoder = SSEDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.finish()


def datas(*pieces: bytes) -> list[bytes]:
    return [event.data for event in parsed(*pieces)]


def by_the_book(stream: bytes) -> list[ServerSentEvent]:
    """Parse a whole stream line by line as the specification says, plainly and slowly."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: list[ServerSentEvent] = []
    name, data = b"", list[bytes]()
    lines = [b"data:" + line if line[:1] == b"{" else line for line in text.split(b"\n")]
    for line in [*lines, b""]:  # The body's end dispatches what is left.
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if line == b"":
            joined = b"\n".join(data)
            if joined and not joined.startswith(b":"):
                events.append(ServerSentEvent(name, joined))
            name, data = b"", []
        elif field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return events


@settings(deadline=None, max_examples=200)
@given(stream=streams, cuts=st.lists(st.integers(0, 60), max_size=6))
@example(stream=b"data: a\r\n\r\ndata: b\r\n\r\n", cuts=[8, 9, 10])
@example(stream=b"\xef\xbb\xbfdata: a\n\n", cuts=[1, 2])
@example(stream=b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", cuts=[4])
@example(stream=b"\xef\xbbdata: a\n\ndata: b", cuts=[1])
def test_any_cut_of_any_stream_gives_the_events_of_the_specification(
    stream: bytes, cuts: list[int]
) -> None:
    borders = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[a:b] for a, b in pairwise(borders)]
    assert parsed(*pieces) == parsed(stream) == by_the_book(stream)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_each_line_end_ends_a_line(end: bytes) -> None:
    stream = end.join([b"data: a", b"data: b", b"", b"data: c", b"", b""])
    assert datas(stream) == [b"a\nb", b"c"]
    assert datas(*(stream[at : at + 1] for at in range(len(stream)))) == [b"a\nb", b"c"]


def test_nothing_else_ends_a_line() -> None:
    odd = "a\x0b\x0c\x1c\x85\u2028\u2029b".encode()
    assert datas(b"data: " + odd + b"\n\n") == [odd]


def test_one_byte_order_mark_is_dropped_at_the_start_and_nowhere_else() -> None:
    assert datas(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]
    assert datas(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n") == []
    assert datas(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [b"a"]


def test_one_space_after_the_colon_is_dropped() -> None:
    assert datas(b"data:a\n\ndata: a\n\ndata:  a\n\n") == [b"a", b"a", b" a"]


def test_the_last_event_counts_without_its_blank_line() -> None:
    assert datas(b"data: a\n\ndata: b\n") == [b"a", b"b"]
    assert datas(b"data: a\n\ndata: b") == [b"a", b"b"]
    assert datas(b"data: a\n\ndata: b\r") == [b"a", b"b"]


def test_comments_empty_data_and_unknown_fields_are_noise() -> None:
    assert parsed(b": ping\n\ndata:\n\ndata\n\ndata: : ping\n\nfoo: bar\n\ndata : x\n\n") == []


def test_objects_that_no_blank_line_separates_are_events_of_their_own() -> None:
    assert datas(b'data: {"a":1}\ndata: {"b":2}\ndata: [DONE]\n') == [
        b'{"a":1}',
        b'{"b":2}',
        b"[DONE]",
    ]
    assert datas(b'data: {"a":1} \r\ndata:  {"b":2}\r\n') == [b'{"a":1} ', b' {"b":2}']


def test_an_object_over_several_data_lines_is_one_event() -> None:
    assert datas(b'data: {"a":{}\ndata: ,"b":[{},\ndata: {}]}\n\n') == [b'{"a":{}\n,"b":[{},\n{}]}']


def test_a_line_of_json_whose_field_was_dropped_is_an_event() -> None:
    assert datas(b'data: {"a":1}\n\n{"b":2}\n\n[DONE]\n\n') == [b'{"a":1}', b'{"b":2}', b"[DONE]"]
    assert datas(b'data: {"a":1}\n{"b":2}\n') == [b'{"a":1}', b'{"b":2}']


def test_a_name_belongs_to_its_event_only() -> None:
    assert parsed(b"event: error\ndata: a\n\ndata: b\n\nevent: x\n\ndata: c\n\n") == [
        ServerSentEvent(b"error", b"a"),
        ServerSentEvent(b"", b"b"),
        ServerSentEvent(b"", b"c"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"data: x",
        b"\r\n data:x",
        b": ping\n\n",
        b"id: 1\ndata: x",
        b"retry: 5\n",
        b"event: x\n",
        b"1a\r\ndata: x\r\n",
    ],
)
def test_a_stream_is_known_by_its_fields(body: bytes) -> None:
    assert looks_like_sse(body)


@pytest.mark.parametrize("body", [b"", b"hello", b"{}", b"database", b"datadata: x"])
def test_other_text_is_no_stream(body: bytes) -> None:
    assert not looks_like_sse(body)


def test_what_an_unfinished_event_holds_is_accounted_for() -> None:
    """Endless data lines without a blank line grew memory that no cap saw."""
    decoder = SSEDecoder()
    for number in range(1000):
        decoder.feed(b"data:\n")
        assert decoder.size >= number
    decoder.feed(b"\n")
    assert decoder.size == 0
    for number in range(1000):
        decoder.feed(b"x")
        assert decoder.size >= number
    decoder.feed(b"\n\n")
    assert decoder.size == 0
