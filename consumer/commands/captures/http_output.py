"""Responses as a client shows them: server-sent events, after headers or without."""

import re
from collections.abc import Callable
from typing import Final

from consumer.commands.captures.lines import Block, Lines

_STATUS: Final = re.compile(rb"HTTP/\d(?:\.\d)? \d{3}\b")
_FIELD: Final = re.compile(rb"(?:data|event|id|retry):|:")
_DONE: Final = re.compile(rb"data: *\[DONE\]\s*$")
_FIRST_EVENT: Final = re.compile(rb"event: *(?:response\.created|message_start)\s*$")
# Events of other APIs name the ids of items, too; a first event tells their streams apart.
_API_EVENT: Final = re.compile(rb'"type": ?"(?:response\.|message_|content_block_)')
_CHUNK_ID: Final = re.compile(rb'"id": ?"([^"\\]+)"')
_FINISHED: Final = re.compile(rb'"finish_reason": ?"')
_UNFINISHED: Final = re.compile(rb'"finish_reason": ?null')
_PAGE: Final = re.compile(rb"\s*<(?:!doctype html|html)\b", re.IGNORECASE)
_PAGE_END: Final = b"</html>"
_MAX_ID_AT: Final = 200
_MAX_RECENT_IDS: Final = 1000
_TEXT: Final = (b"{", b"[", b'"', b"data:", b"event:", b"id:", b"retry:", b":")


def is_status(line: bytes) -> bool:
    """Return whether a line is the status line of a response."""
    return _STATUS.match(line) is not None


def read_headers(lines: Lines) -> Block | None:
    """Read the headers of a response, and its body if that is still compressed.

    curl shows the header of a compression that it has undone, so that the body decides.
    """
    encoding = b""
    while (line := lines.read()) is not None and line.strip():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-encoding":
            encoding = value.strip()
    line = lines.read() if encoding else None
    if line is None:
        return None
    number = lines.number
    if not line.strip() or line.lstrip().startswith(_TEXT):
        lines.put_back(line)
        return None
    body = [line]
    while (line := lines.read()) is not None:
        if is_status(line):
            lines.put_back(line)
            break
        body.append(line)
    return Block(number, b"".join(body), {"the_headers": [("content-encoding", encoding)]})


def is_page(line: bytes) -> bool:
    """Return whether a line begins the page with which a gateway reports an error."""
    return _PAGE.match(line) is not None


def read_page(lines: Lines, line: bytes) -> Block:
    """Read the HTML page that begins with a line."""
    number, read = lines.number, [line]
    while _PAGE_END not in read[-1].lower() and (following := lines.read()) is not None:
        read.append(following)
    return Block(number, b"".join(read))


def is_event_field(line: bytes) -> bool:
    """Return whether a line is a field of a server-sent event, or a comment."""
    return _FIELD.match(line) is not None


class RecentIds:
    """Ids of the responses that were read last; a capture may have any number of them."""

    def __init__(self) -> None:
        self._ids: dict[bytes, None] = {}

    def __contains__(self, response_id: bytes) -> bool:
        return response_id in self._ids

    def add(self, response_id: bytes) -> None:
        """Take an id, which is then the last one to be forgotten."""
        self._ids.pop(response_id, None)
        self._ids[response_id] = None
        if len(self._ids) > _MAX_RECENT_IDS:
            del self._ids[next(iter(self._ids))]


def read_stream(
    lines: Lines, line: bytes, response_ids: RecentIds, begins_other: Callable[[bytes], bool]
) -> Block:
    """Read the stream of server-sent events that begins with a line, to its end.

    It ends after `[DONE]`, and where another stream or another kind of data begins. Of streams that
    were written at the same time, each run of events is a block. A line that is not a field stays
    in the stream: gateways lose the `data:` of an event.

    Args:
        lines: the lines after it.
        line: the line that was read last.
        response_ids: those of all streams of the capture.
        begins_other: whether a line begins data of another kind.

    """
    number, stream = lines.number, _Stream(response_ids)
    following: bytes | None = line
    read = []
    while following is not None:
        read.append(following)
        stream.feed(following)
        following = lines.read()
        if following is not None and (stream.is_before(following) or begins_other(following)):
            lines.put_back(following)
            break
    return Block(number, b"".join(read))


class _Stream:
    """How far a stream is, as its lines tell."""

    def __init__(self, response_ids: RecentIds) -> None:
        self._done = self._has_data = self._finished = False
        self._id, self._chunks_with_id = b"", 0
        self._ids = response_ids

    def feed(self, line: bytes) -> None:
        """Take the next line of the stream."""
        self._done = self._done or _DONE.match(line) is not None
        if line.startswith(b"data:"):
            self._has_data = True
            self._finished = self._finished or _FINISHED.search(line) is not None
            if response_id := _id_of(line):
                self._chunks_with_id = 1 + self._chunks_with_id * (response_id == self._id)
                self._id = response_id
                self._ids.add(response_id)

    def is_before(self, line: bytes) -> bool:
        """Return whether the stream has ended before a line."""
        if self._done:
            return bool(line.strip()) and not line.startswith(b":")
        if not self._has_data or not line.startswith((b"data:", b"event:")):
            return False
        if _FIRST_EVENT.match(line):
            return True
        response_id = _id_of(line)
        if not response_id or not self._id or response_id == self._id:
            return False
        # Some gateways give each chunk an id of its own; such an id never comes again.
        is_other = self._chunks_with_id > 1 or response_id in self._ids
        return is_other or (self._finished and _UNFINISHED.search(line) is not None)


def _id_of(line: bytes) -> bytes:
    is_chunk = line.startswith(b"data:") and _API_EVENT.search(line) is None
    found = _CHUNK_ID.search(line, 0, _MAX_ID_AT) if is_chunk else None
    return found[1] if found else b""
