"""One attempt at a request: open, or finished and still known."""

from collections.abc import Callable
from dataclasses import dataclass, field
from zlib import crc32

from msgspec import Struct

from consumer.core.bodies.facts import ResponseFacts
from consumer.core.message import EventPlace, Headers, headers_of, trace_of
from consumer.core.reassembly.response import Response
from consumer.core.reassembly.segments import Segments
from consumer.core.reassembly.sequences import SeenSequences
from consumer.core.response_event import Context, Event
from consumer.core.stream_time import BlockState
from schemas import IncompleteReason

RequestKey = str | tuple[str, str]  # The request id, after its source where the event names one.


class Arrival(Struct, gc=False):
    """Where and when an event arrived.

    Attributes:
        place: offset of its message, and its index in the message.
        timestamp: Kafka timestamp of the message, milliseconds since 1970, or -1.
        block: stream time where the block of the message begins.
        headers: returns the message's headers; slow, and called only when a request opens.

    """

    place: EventPlace
    timestamp: int
    block: BlockState
    headers: Callable[[], Headers | None]


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt at a request.

    A partition may hold a million: what most attempts have in common is kept once, and what few
    have is made when it is needed. `content_run` keeps an attempt compact between its events, and
    expands it before anything else reads `facts` or `seen`.
    """

    key: RequestKey
    number: int
    earlier_place: EventPlace | None  # `request_place`, if an earlier attempt began the request.
    offset: int  # With `index`, the place of the first event.
    index: int
    timestamp: int
    first_block: BlockState  # Block of the first event.
    last_new_block: BlockState  # Block of the last event that was not a repeat;
    last_new_within: int  # the event's distance from it: a small number needs no memory of its own.
    last_event_block: BlockState  # Of the request's latest attempt: block of its last event.
    facts: ResponseFacts = field(default_factory=ResponseFacts)
    must_report: bool = True  # Whether its outcome has not been reported yet.
    open: bool = True
    arrivals: int = 0  # How many events without sequence arrived.
    first_digest: int | None = None  # Of the event of sequence 0.
    started: int = -1  # Earliest time of an event,
    completed: int = -1  # and latest; both are negative as long as no event has a time.
    final: bool = False
    context: Context | None = None
    next: int | None = None  # The next sequence, as long as all have arrived in order;
    seen: SeenSequences | None = None  # the sequences that have arrived, if they have not.
    segments: Segments | None = None
    pins_start: bool = True  # Whether re-reading must reach back to its first event.
    content_id: str | None = None  # Set while compact: the body id of its next content.

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
        return self.seen.complete if self.seen is not None else self.final

    def __lt__(self, other: "Attempt") -> bool:
        """Order attempts that a heap lists at one offset."""
        return self.place < other.place

    def has_seen(self, sequence: int) -> bool:
        """Return whether the event of a sequence has arrived."""
        if self.next is not None:
            return sequence < self.next
        return self.seen is not None and self.seen.has(sequence)

    def add_event(self, event: Event) -> int:
        """Note that an event has arrived, and return its order among those of the attempt."""
        sequence = event.sequence
        if sequence is None:
            self.arrivals += 1
            return self.arrivals - 1
        if sequence == 0:
            self.first_digest = crc32(event.raw)
        if self.seen is None:
            if sequence == (self.next or 0):
                self.next = sequence + 1
                return sequence
            self.seen, self.next = SeenSequences(self.next or 0), None
        self.seen.add(sequence)
        return sequence

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
            source,
            request_id,
            self.number,
            self.place,
            self.last_offset,
            self.timestamp,
            self.started if has_times else None,
            self.completed if has_times else None,
            self.context,
            self.facts,
            self.facts.failed,
            incomplete,
        )

    def keep_little(self) -> None:
        """Drop what a finished attempt does not need to recognise its repeats."""
        facts = self.facts
        self.facts = ResponseFacts(
            facts.response_id, facts.other_ids, ended=self.final, failed=facts.failed
        )
        self.context = self.segments = self.seen = self.next = None
        self.must_report = self.open = False


def with_trace(context: Context | None, headers: Callable[[], Headers | None]) -> Context | None:
    """Add the trace in the message's headers, unless the event has one."""
    if context is not None and context.traceparent is not None:
        return context
    known_headers = headers_of(headers)
    trace = trace_of(known_headers) if known_headers else None
    if trace is None:
        return context
    known = context or Context()
    return Context(known.model, known.instance, known.endpoint, known.labels, trace)


def _merged(known: Context | None, more: Context) -> Context:
    if known is None:
        return more
    return Context(
        known.model or more.model,
        known.instance or more.instance,
        known.endpoint or more.endpoint,
        known.labels or more.labels,
        known.traceparent or more.traceparent,
    )
