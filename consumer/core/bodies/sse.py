"""Server-sent events decoded from bytes that may be cut anywhere.

Follows the WHATWG specification, "Parsing an event stream": only CR, LF and CRLF end a line, data
lines are joined by LF, one BOM at the start is dropped, comments and unknown fields are ignored.
Beyond it, a last event without its blank line counts when the body ends, and data that is empty or
is itself a comment is ignored. What gateways do to streams of JSON is undone: a line that begins
like JSON counts as data without its field, and where a blank line is missing between two objects,
which the standard would join to what can never be JSON, they are two events.
"""

from typing import Final

from msgspec import Struct

from consumer.core.bodies.json_text import why_not_json
from schemas import IncompleteReason

_BOM: Final = b"\xef\xbb\xbf"
_FIELDS: Final = (b"data:", b"event:", b":", b"id:", b"retry:", b"data\n", b"data\r")
_DONE: Final = b"[DONE]"
_JSON_LINES: Final = (b"{", _DONE)  # The standard has no field of such a name.
_BLANK_LINE: Final = [b""]
_LINE_STARTS: Final = (b"data:", b"event:", b":", b"id:", b"retry:", *_JSON_LINES)
_LINE_BYTES: Final = 64  # Memory of a held line beside its bytes.
_END_BYTES: Final = 4 * _LINE_BYTES


class ServerSentEvent(Struct, frozen=True, gc=False):
    """One dispatched event."""

    name: bytes
    data: bytes


def looks_like_sse(body: bytes) -> bool:
    """Return whether a body is server-sent events."""
    start = body.lstrip(b"\r\n \t")
    if start.startswith(_FIELDS):
        return True
    # Chunked transfer framing, if it was not removed, puts a length before the first field.
    head = start[:4096].replace(b"\r", b"\n")
    return b"\ndata:" in head or b"\nevent:" in head


class SSEDecoder:
    """Collects events from pieces of a stream; holds at most one unfinished event.

    Attributes:
        size: memory of the unfinished event, in bytes.

    """

    __slots__ = ("_at_start", "_data", "_data_size", "_held", "_name", "_tail", "size")

    def __init__(self) -> None:
        self._at_start = True
        self._tail: list[bytes] = []  # Pieces of a line whose end has not come.
        self._held = b""  # A CR at the end: half of a CRLF, or a line end of its own.
        self._data: list[bytes] = []
        self._data_size = 0
        self._name = b""
        self.size = 0

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """Decode the next bytes, and return the events that they complete."""
        if self._at_start:
            piece = self._without_bom(piece)
            if self._at_start:
                return []
        if self._held or b"\r" in piece:
            piece = self._held + piece
            self._held = b"\r" if piece.endswith(b"\r") else b""
            if self._held:
                piece = piece[:-1]
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = piece.split(b"\n")
        if len(lines) == 1:
            if piece:
                self._tail.append(piece)
                self.size += len(piece) + _LINE_BYTES
            return []
        if self._tail:
            lines[0] = b"".join([*self._tail, lines[0]])
        last = lines.pop()
        events = self._dispatch(lines)
        self._tail = [last] if last else []
        self.size = len(last) + len(self._name) + self._data_size
        return events

    @property
    def holds_end(self) -> bool:
        """Whether an end marker has come that lacks its line end or its blank line."""
        if not 0 < self.size < _END_BYTES:
            return False
        rest = b"".join(self._tail) or (self._data[-1] if self._data else b"")
        return rest.removeprefix(b"data:").strip() == _DONE

    def missing_line_end(self, piece: bytes) -> bytes:
        """Return the line end that is missing before a piece, if any.

        Many producers log a stream line by line, without line ends. A piece that begins like a line
        begins one unless it continues what is unfinished: a JSON object, or a field without value.
        """
        if not self._tail or self._held or not piece.startswith(_LINE_STARTS):
            return b""
        line = b"".join(self._tail)
        data = line.removeprefix(b"data:").strip()
        if data.startswith(b"{"):
            return b"" if why_not_json(data) is IncompleteReason.TRUNCATED else b"\n\n"
        if line.startswith(b"data:"):
            return b"" if not data and piece.startswith(_JSON_LINES) else b"\n\n"
        return b"\n" if line.startswith(_FIELDS) else b""

    def finish(self) -> list[ServerSentEvent]:
        """Return the event that is still unfinished when the body ends, if any."""
        rest = b"".join(self._tail)
        self._tail = []
        if self._at_start:
            rest = rest.removeprefix(_BOM)
        self._held = b""
        return self._dispatch([rest, b""] if rest else [b""])

    def _without_bom(self, piece: bytes) -> bytes:
        piece = b"".join([*self._tail, piece])
        self._tail = []
        if len(piece) < len(_BOM) and _BOM.startswith(piece):
            self._tail = [piece]
            return b""
        self._at_start = False
        return piece.removeprefix(_BOM)

    def _dispatch(self, lines: list[bytes]) -> list[ServerSentEvent]:
        events = []
        data = self._data
        for line in lines:
            if line.startswith(b"data:"):
                text = line[6:] if line[5:6] == b" " else line[5:]
                if data and _is_next_object(data[-1], text):
                    events += self._dispatch(_BLANK_LINE)
                data.append(text)
                self._data_size += len(line) + _LINE_BYTES
            elif not line:
                if data:
                    text = data[0] if len(data) == 1 else b"\n".join(data)
                    if text and not text.startswith(b":"):
                        events.append(ServerSentEvent(self._name, text))
                    data.clear()
                    self._data_size = 0
                self._name = b""
            elif line.startswith(b"event:") or line == b"event":
                self._name = line[6:].removeprefix(b" ")
            elif line == b"data" or line.startswith(_JSON_LINES):
                events += self._dispatch([b"data:" + line.removeprefix(b"data")])
        return events


def _is_next_object(before: bytes, text: bytes) -> bool:
    """Return whether a line begins a JSON object or end marker after a line that ends an object."""
    return before.rstrip().endswith(b"}") and text.lstrip().startswith(_JSON_LINES)
