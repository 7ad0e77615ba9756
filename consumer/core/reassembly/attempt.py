"""One attempt at a request: open, or finished and still known."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from msgspec import Struct

from consumer.core.bodies.facts import ResponseFacts
from consumer.core.message import EventPlace, Headers, headers_of, trace_of
from consumer.core.reassembly.response import Response
from consumer.core.reassembly.segments import Segments
from consumer.core.reassembly.sequences import SeenSequences
from consumer.core.response_event import Event, RequestContext
from consumer.core.stream_time import BlockState
from schemas import IncompleteReason

_DIGEST_BYTES: Final = 4
_MAX_RESULTS: Final = 16  # A finish reason of each choice, and the usage chunk.

RequestKey = str | tuple[str, str]  # The request id, after its source where the event names one.


class Arrival(Struct, gc=False):
    """Where and when an event arrived.

    Attributes:
        place: offset of its message, and its index in the message.
        timestamp: Kafka timestamp of the message, milliseconds since 1970, or -1.
        block: state of stream time where the block of the message begins.
        read_headers: returns the message's headers; slow, and called only when a request opens.

    """

    place: EventPlace
    timestamp: int
    block: BlockState
    read_headers: Callable[[], Headers | None]


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt at a request.

    A partition may hold a million: what most attempts have in common is kept once, and what few
    have is made when it is needed. `content_run` keeps an attempt compact between its events, and
    expands it before anything else reads `facts` or `seen`.

    Attributes:
        key: the request id, after its source where the event names one.
        attempt_number: number of the attempt, from 0 if producers do not state it.
        earlier_place: `request_place`, if an earlier attempt began the request.
        offset: offset of the first event.
        index: index of the first event in its message.
        timestamp: Kafka timestamp of the first message, milliseconds since 1970, or -1.
        first_block: block of the first event.
        last_new_block: block of the last event that was not a repeat.
        last_new_within: offset of that event less that of its block (a small integer, which Python
            does not allocate).
        last_event_block: block of the request's last event of any kind; kept on its latest attempt
            only.
        must_report: whether its outcome has not been reported yet.
        open: whether its end has not been seen, and it has not been given up.
        unsequenced_events: number of events without sequence.
        first_sequence: 0, or 1 as long as it is not known that sequences begin at 0.
        first_digest: digest of the event of that sequence.
        started: earliest time of an event; negative as long as no event has a time.
        completed: latest time of an event; negative as long as no event has a time.
        has_final: whether the last event of the attempt has arrived.
        awaits_usage: whether an event called final had a finish reason, and no usage has come.
        context: what the envelopes say about the request.
        next_sequence: the next sequence, as long as all have arrived in order.
        seen: the sequences that have arrived, if they have not arrived in order.
        segments: raw segments that are not folded yet.
        pins_start: whether re-reading must reach back to its first event.
        results: digests of the events without sequence that hold a result, four bytes each.
        earlier_results: the same of the attempt before, if this one began again under its ids.
        result_created: latest `created` of those events, in seconds since 1970, or -1.
        content_id: the response id that its next content must have; None unless it is compact.

    """

    key: RequestKey
    attempt_number: int
    earlier_place: EventPlace | None
    offset: int
    index: int
    timestamp: int
    first_block: BlockState
    last_new_block: BlockState
    last_new_within: int
    last_event_block: BlockState
    facts: ResponseFacts = field(default_factory=ResponseFacts)
    must_report: bool = True
    open: bool = True
    unsequenced_events: int = 0
    first_sequence: int = 0
    first_digest: int | None = None
    started: int = -1
    completed: int = -1
    has_final: bool = False
    awaits_usage: bool = False
    context: RequestContext | None = None
    next_sequence: int | None = None
    seen: SeenSequences | None = None
    segments: Segments | None = None
    pins_start: bool = True
    results: bytes = b""
    earlier_results: bytes = b""
    result_created: float = -1
    content_id: str | None = None

    @property
    def place(self) -> EventPlace:
        """Place of the first event."""
        return self.offset, self.index

    @property
    def request_place(self) -> EventPlace:
        """Place of the first event of the request's first attempt that is known."""
        return self.earlier_place or (self.offset, self.index)

    @property
    def last_offset(self) -> int:
        """Offset of the last new event."""
        return self.last_new_block.offset + self.last_new_within

    @property
    def has_ended(self) -> bool:
        """Whether it failed, or its last event and all before that have arrived."""
        if self.facts.failed:
            return True
        if self.seen is None:
            return self.has_final
        # Segments can be joined from sequence 1 on only when it is certain that 0 will not come.
        return self.seen.complete and (self.segments is None or not self.seen.begins_at_one)

    def __lt__(self, other: "Attempt") -> bool:
        """Order attempts that a heap lists at one offset."""
        return self.place < other.place

    def has_seen(self, sequence: int) -> bool:
        """Return whether the event of a sequence has arrived."""
        if self.next_sequence is not None:
            return sequence < self.next_sequence
        return self.seen is not None and self.seen.has(sequence)

    def add_event(self, event: Event) -> int:
        """Note that an event has arrived, and return its order among those of the attempt."""
        sequence = event.sequence
        if sequence is None:
            self.unsequenced_events += 1
            return self.unsequenced_events - 1
        opens = self.next_sequence is None and self.seen is None
        if sequence == 0 or (sequence == 1 and opens):
            self.first_sequence, self.first_digest = sequence, crc32(event.raw)
        if self.seen is None:
            if sequence == (self.next_sequence or 0):
                self.next_sequence = sequence + 1
                return sequence
            at_one = sequence == 1 and opens
            self.seen = SeenSequences(self.next_sequence or 0, may_begin_at_one=at_one)
            self.next_sequence = None
        self.seen.add(sequence)
        return sequence

    def note_result(self, digest: int, created: float) -> None:
        """Note an event without sequence that holds a result, as `BodyReader.result_digest`."""
        if not has_digest(self.results, digest):
            self.results += digest.to_bytes(_DIGEST_BYTES, "big")
        self.result_created = max(self.result_created, created)

    def note_place(self, arrival: Arrival) -> None:
        """Note where a new event arrived."""
        self.last_new_block = arrival.block
        self.last_new_within = arrival.place[0] - arrival.block.offset

    def note_envelope(self, event: Event) -> None:
        """Note what an event says around its body."""
        if (time := event.time) is not None:
            if self.completed < 0:
                self.started = self.completed = time
            elif time > self.completed:
                self.completed = time
            elif time < self.started:
                self.started = time
        if event.context is not None and event.context != self.context:
            self.context = _merged(self.context, event.context)
        if event.failed:
            self.facts.failed = True

    def response(self, incomplete: IncompleteReason | None) -> Response:
        """Return what is known of the response, which is finished or given up."""
        source, request_id = self.key if isinstance(self.key, tuple) else ("", self.key)
        has_times = self.completed >= 0
        return Response(
            source=source,
            request_id=request_id,
            attempt=self.attempt_number,
            place=self.place,
            last_offset=self.last_offset,
            timestamp=self.timestamp,
            started=self.started if has_times else None,
            completed=self.completed if has_times else None,
            context=self.context,
            facts=self.facts,
            failed=self.facts.failed,
            incomplete=incomplete,
        )

    def shrink(self) -> None:
        """Drop what a finished attempt does not need to recognise its repeats."""
        facts = self.facts
        self.facts = ResponseFacts(
            facts.response_id, facts.other_ids, ended=self.has_final, failed=facts.failed
        )
        self.context = self.segments = self.seen = self.next_sequence = None
        self.must_report = self.open = False


def has_digest(digests: bytes, digest: int) -> bool:
    """Return whether a digest is among others; with too many of them, any may be."""
    one = digest.to_bytes(_DIGEST_BYTES, "big")
    places = range(0, len(digests), _DIGEST_BYTES)
    return len(places) >= _MAX_RESULTS or any(digests.startswith(one, at) for at in places)


def with_trace(
    context: RequestContext | None, read_headers: Callable[[], Headers | None]
) -> RequestContext | None:
    """Add the trace in the message's headers, unless the event has one."""
    if context is not None and context.traceparent is not None:
        return context
    known_headers = headers_of(read_headers)
    trace = trace_of(known_headers) if known_headers else None
    if trace is None:
        return context
    known = context or RequestContext()
    return RequestContext(known.model, known.instance, known.endpoint, known.labels, trace)


def _merged(known: RequestContext | None, more: RequestContext) -> RequestContext:
    if known is None:
        return more
    return RequestContext(
        known.model or more.model,
        known.instance or more.instance,
        known.endpoint or more.endpoint,
        known.labels or more.labels,
        known.traceparent or more.traceparent,
    )
