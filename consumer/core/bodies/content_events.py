"""Server-sent events that hold nothing but content, recognised many at once.

Nearly all events of a long stream differ in one string alone. To prove that of many events costs
less than to decode each.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from consumer.core.bodies.documents import ContentChunk, DocumentReader

_LONG_STREAM: Final = 4096
_LAST_EVENTS: Final = 4
_PIECE_BYTES: Final = 1 << 14
_DATA: Final = b"data:"
_NEXT_DATA: Final = b"\n\ndata:"
_EVENT_END: Final = b"\n\n"
_AFTER_VALUE: Final = (b",", b"}", b"]")
_decode_texts: Final = msgspec.json.Decoder(list[str]).decode


def content_range(text: bytes) -> tuple[int, int] | None:
    """Return the part of a long stream that holds nothing but content in nearly all streams.

    That is all but the first event, which names the stream, and the last ones: the finish reason,
    the usage, the statistics and the end marker have one each.
    """
    if len(text) < _LONG_STREAM or not text.startswith(_DATA):
        return None
    begin, end = text.find(_NEXT_DATA), len(text)
    for _ in range(_LAST_EVENTS):
        end = text.rfind(_NEXT_DATA, 0, end)
    return (begin + 2, end + 2) if 0 <= begin < end else None


def pieces(text: bytes, begin: int, end: int) -> Iterator[bytes]:
    """Cut a part of a stream between events, so that an unusual event costs its piece alone."""
    while begin < end:
        border = text.find(_NEXT_DATA, begin + _PIECE_BYTES, end)
        cut = end if border < 0 else border + 2
        yield text[begin:cut]
        begin = cut


def read_content(reader: DocumentReader, text: bytes) -> tuple[int, set[str]]:
    """Read a piece of a stream in which all events seem to be content.

    Returns:
        number of events, and their ids; no id if an event may say more than content.

    """
    joined = text[len(_DATA) : -len(_EVENT_END)]
    events = joined.split(_NEXT_DATA)
    chunks = _read_alike(reader, events, joined)
    if not chunks and text.count(b"\n") == 2 * len(events) and text.find(b"\r") < 0:
        chunks = reader.read_content(events)
    return len(events), {chunk.id for chunk in chunks}


def _read_alike(reader: DocumentReader, events: list[bytes], joined: bytes) -> list[ContentChunk]:
    """Return a chunk for events of content that differ in one string alone; empty for others.

    One of them is decoded, and decoded again with another text in that string; of the others only
    the texts are, once it is certain that they have nothing else.
    """
    first = next((event for event in events if event.find(b"\\") < 0), events[0])
    other = next((event for event in events if event != first), None)
    if b"\n" in first or b"\r" in first:
        return []
    if other is None:
        return reader.read_content([first])
    begin = first.rfind(b'"', 0, _common_length(first, other)) + 1
    head, tail = first[:begin], first[first.find(b'"', begin) :]
    texts = [event[begin : -len(tail)] for event in events]
    if head + (tail + _NEXT_DATA + head).join(texts) + tail != joined:
        return []
    if tail[1:2] not in _AFTER_VALUE or not _are_texts(texts):
        return []
    chunk, changed = (reader.read_content([head + t + tail]) for t in (texts[0], b"x"))
    return chunk if chunk == changed else []


def _common_length(one: bytes, other: bytes) -> int:
    """Return the length of the longest common prefix."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _are_texts(texts: list[bytes]) -> bool:
    """Return whether each text, none of which has a line end, can stand in a JSON string."""
    try:
        # The line ends keep a text that ends in a backslash from reaching into the next one.
        found = _decode_texts(b'["%b"]' % b'"\n,"'.join(texts))
    except msgspec.MsgspecError:
        return False
    return len(found) == len(texts)
