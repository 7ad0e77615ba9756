"""Folding of one event into its attempt."""

import sys
from typing import Final

from consumer.core.bodies.body_reader import BodyReader, created_of
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.shapes import NOT_A_RESPONSE, STREAMED, Shape
from consumer.core.reassembly.attempt import Attempt
from consumer.core.reassembly.limits import Limits
from consumer.core.reassembly.segments import PIECE_BITS, Segments
from consumer.core.response_event import Event, EventKind
from schemas import IncompleteReason

_WHOLE_OBJECTS: Final = ("chat.completion", "response")
# Not looked up for each event: see CONTRIBUTING.md.
_CHUNK, _SEGMENT, _END = EventKind.CHUNK, EventKind.SEGMENT, EventKind.END
_WHOLE_BODY: Final = Shape.WHOLE
_CHUNK_SHAPE: Final = Shape.CHUNK


class EventFolder:
    """Folds events into attempts; holds no state of any attempt.

    Args:
        body_reader: folds documents and streams.
        limits: bounds of segments and compressed bodies.

    """

    def __init__(self, body_reader: BodyReader, limits: Limits) -> None:
        self._body_reader = body_reader
        self._limits = limits

    def fold(self, attempt: Attempt, event: Event) -> None:
        """Fold an event into its attempt, which is not compact."""
        order = attempt.add_event(event)
        attempt.note_envelope(event)
        kind = event.kind
        if kind is _CHUNK and event.segment and _is_piece(attempt, event):
            kind = _SEGMENT
        ended, end = event.final or kind is _END, event.sequence
        if kind is _CHUNK:
            ended = self._fold_chunk_of(attempt, event, order, ended=ended)
        elif kind is _SEGMENT:
            if attempt.segments is None:
                attempt.segments = Segments(self._limits.max_segment_bytes)
            attempt.segments.hold(order, event.segment)
        if attempt.segments is not None:
            last = self._release(attempt, attempt.segments)
            if last is not None:
                ended, end = True, last if event.sequence is not None else None
        if ended:
            attempt.has_final = True
            if attempt.seen is not None:
                attempt.seen.mark_end(end)

    def flush(self, attempt: Attempt) -> IncompleteReason | None:
        """Fold what segments still hold, since no more will come; return what is wrong."""
        segments, attempt.segments = attempt.segments, None
        if segments is not None:
            if attempt.seen is not None and attempt.seen.begins_at_one:
                self._release_all(attempt, segments)
            if segments.overflowed:
                return IncompleteReason.SEGMENT_OVERFLOW
            segments.finish(self._body_reader, attempt.facts, self._limits.max_inflated_bytes)
        return damage_of(attempt.facts)

    def result_digest(self, event: Event) -> int | None:
        """Return a digest of the result in a chunk, or None if there is none."""
        if event.document is None or event.shape is not _CHUNK_SHAPE:
            return None
        return self._body_reader.result_digest(event.document)

    def body_id(self, event: Event) -> str | None:
        """Return the id in an event's body, if it has one."""
        if event.facts is not None:
            return event.facts.response_id
        facts = ResponseFacts()
        if event.document is not None and event.shape not in NOT_A_RESPONSE:
            self._body_reader.fold_document(facts, event.document, 0, event.shape)
        elif event.kind is _SEGMENT:
            self._body_reader.fold_body(facts, event.segment)
        return facts.response_id

    def _fold_chunk_of(self, attempt: Attempt, event: Event, order: int, *, ended: bool) -> bool:
        """Fold a chunk; return whether it ends its attempt, as its event may state."""
        facts, before = attempt.facts, attempt.facts.ended
        self._fold_chunk(facts, event, order)
        if event.sequence is None and (digest := self.result_digest(event)) is not None:
            attempt.note_result(digest, created_of(event.document))
        if ended and facts.usage is None and _lacks_usage(event, facts):
            ended, attempt.awaits_usage = False, True
        by_usage = event.lacks_end or attempt.awaits_usage
        return ended or facts.ended != before or (by_usage and facts.closed)

    def _fold_chunk(self, facts: ResponseFacts, event: Event, order: int) -> None:
        document, shape = event.document, event.shape
        if document is None or shape in NOT_A_RESPONSE:
            return  # It only shows that the request is active, and counts for the order.
        self._body_reader.fold_document(facts, document, order << PIECE_BITS, shape)
        if shape in STREAMED:
            facts.streamed = True
        elif shape is _WHOLE_BODY:
            # In a stream, the last chunk of some APIs looks like a whole body and is not one.
            alone = facts.documents == 1 and event.sequence is None
            alone = alone or facts.stopped
            facts.ended = facts.ended or alone or document.object in _WHOLE_OBJECTS

    def _release(self, attempt: Attempt, segments: Segments) -> int | None:
        """Fold the segments before which everything has arrived; return the order of the end."""
        below = attempt.next_sequence
        if below is None:
            below = attempt.unsequenced_events if attempt.seen is None else attempt.seen.next
        return segments.release(
            below, self._body_reader, attempt.facts, self._limits.max_inflated_bytes
        )

    def _release_all(self, attempt: Attempt, segments: Segments) -> None:
        """Fold the segments of an attempt whose sequences begin at 1."""
        limit = self._limits.max_inflated_bytes
        segments.release(sys.maxsize, self._body_reader, attempt.facts, limit)


def _lacks_usage(event: Event, facts: ResponseFacts) -> bool:
    """Return whether an event called final is the finish reason of a stream, and no usage has come.

    Some producers take the finish reason for the end, and the usage chunk follows.
    """
    finishes = event.shape is _CHUNK_SHAPE and facts.finish_reason is not None
    return finishes and facts.stats is None


def _is_piece(attempt: Attempt, event: Event) -> bool:
    """Return whether text that is a JSON object is a piece of one, which was cut there."""
    return attempt.segments is not None and event.shape in NOT_A_RESPONSE


def damage_of(facts: ResponseFacts) -> IncompleteReason | None:
    """Return what is wrong with a response that has ended, if anything is."""
    if facts.truncated:
        return IncompleteReason.TRUNCATED
    return IncompleteReason.DAMAGED if facts.damaged else None
