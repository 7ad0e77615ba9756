"""Raw pieces of one body, cut anywhere and perhaps out of order, joined before they are parsed."""

from heapq import heappop, heappush
from typing import Final

from consumer.core.bodies.body_reader import BOM_AND_SPACE, BodyReader
from consumer.core.bodies.encoding import MAGIC_BYTES, inflate, is_compressed
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.sse import SSEDecoder
from schemas import BadPayloadReason

PIECE_BITS: Final = 32  # Events inside one segment are ordered below the segment's own order.
_LAST_ORDER: Final = 1 << 199  # Below `UNSEEN`, and above all others.
_PIECE_BYTES: Final = 128  # Overhead of a held piece.


class Segments:
    """The segments of one attempt.

    A stream is decoded as it arrives, and only its unfinished event is held. A JSON or compressed
    body is held until it ends, unless each segment is a document of its own. All that is held
    counts against the cap; above it, everything is dropped.

    Args:
        cap: maximum bytes held.

    Attributes:
        overflowed: whether more than that would have been held.
        lacks_line_end: whether the end marker came without the line end that may follow it.

    """

    __slots__ = (
        "_blob",
        "_cap",
        "_early",
        "_early_size",
        "_stream",
        "lacks_line_end",
        "overflowed",
    )

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._early: list[tuple[int, bytes]] = []  # A heap: they arrived before an earlier one.
        self._early_size = 0
        self._stream: SSEDecoder | None = None
        self._blob: bytearray | None = None
        self.overflowed = self.lacks_line_end = False

    def hold(self, order: int, piece: bytes) -> None:
        """Keep a segment until everything before it has arrived; `release` must follow."""
        heappush(self._early, (order, piece))
        self._early_size += len(piece) + _PIECE_BYTES

    def release(
        self, below: int, body_reader: BodyReader, facts: ResponseFacts, limit: int
    ) -> int | None:
        """Fold the held segments whose order is below a bound.

        Returns:
            order of the segment with an end marker, or None.

        """
        ended = None
        while self._early and self._early[0][0] < below:
            order, piece = heappop(self._early)
            self._early_size -= len(piece) + _PIECE_BYTES
            before = facts.ended
            self.feed(order, piece, body_reader, facts, limit)
            if facts.ended and not before:
                ended = order
        self._drop_if_over()  # Not before: a large piece whose turn it is need not be held.
        return ended

    def feed(
        self, order: int, piece: bytes, body_reader: BodyReader, facts: ResponseFacts, limit: int
    ) -> None:
        """Fold the next segment in order."""
        if self.overflowed or facts.ended:
            return
        if self._blob is not None and len(self._blob) < MAGIC_BYTES:
            piece, self._blob = bytes(self._blob) + piece, None  # It was too short to recognise.
        begins = self._stream is None and self._blob is None
        if begins:
            piece = piece.lstrip(BOM_AND_SPACE)
            if not piece:
                return
            self._begin(piece)
        if (stream := self._stream) is not None:
            piece = stream.missing_line_end(piece) + piece
            body_reader.fold_stream(facts, stream, piece, order << PIECE_BITS)
            if stream.holds_end:
                self.lacks_line_end = True
                body_reader.fold_stream(facts, stream, b"\n\n", order << PIECE_BITS)
        elif self._blob is not None:
            self._blob += piece
            if begins:  # Often the first is the only one, or each is a document.
                self._try_blob(order, body_reader, facts, limit, at_end=False)
        self._drop_if_over()

    def finish(self, body_reader: BodyReader, facts: ResponseFacts, limit: int) -> None:
        """Fold what is held, since no more segments will arrive."""
        if self._stream is not None:
            body_reader.finish_stream(facts, self._stream, _LAST_ORDER)
        elif self._blob is not None and not facts.ended:
            order = _LAST_ORDER >> PIECE_BITS
            folded = self._try_blob(order, body_reader, facts, limit, at_end=True)
            facts.truncated = facts.truncated or not folded

    def _begin(self, piece: bytes) -> None:
        if piece[:1] in (b"{", b"[", b"<") or is_compressed(piece):
            self._blob = bytearray()
        else:
            self._stream = SSEDecoder()

    def _try_blob(
        self, order: int, body_reader: BodyReader, facts: ResponseFacts, limit: int, *, at_end: bool
    ) -> bool:
        """Fold what is held if it is a whole body; at the end, even if it is cut or damaged."""
        plain = inflate(bytes(self._blob or b""), None, limit)
        if isinstance(plain, BadPayloadReason):
            return False
        folded = body_reader.fold_if_complete(facts, plain, order << PIECE_BITS, at_end=at_end)
        if folded:
            self._blob = None
        return folded

    def _drop_if_over(self) -> None:
        held = self._early_size
        held += self._stream.size if self._stream else 0
        held += len(self._blob) if self._blob else 0
        if held > self._cap:
            self.overflowed = True
            self._early.clear()
            self._early_size = 0
            self._stream = self._blob = None
