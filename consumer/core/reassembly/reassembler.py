"""From response events to finished responses: what is known of one partition's requests.

A request is open from its first event to its end, and stays known for a while after its last event
of any kind, so that late repeats neither reopen it nor publish it twice. A response that is
complete with its first event is never open. Nothing here reads a clock: time is stream time, and so
is a function of the log.
"""

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final
from zlib import crc32

from msgspec import Struct
from msgspec.structs import astuple, replace

from consumer.core.bodies.body_reader import BodyReader
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.shapes import Shape
from consumer.core.checkpoint import open_budget, place_bits
from consumer.core.message import EventPlace, Headers, Message, headers_of, trace_of
from consumer.core.reassembly.limits import Limits
from consumer.core.reassembly.response import Response
from consumer.core.reassembly.segments import PIECE_BITS, Segments
from consumer.core.reassembly.sequences import SeenSequences
from consumer.core.response_event import NOT_CONTENT, Context, DecodeContent, Event, EventKind
from consumer.core.stream_time import BlockState
from schemas import BadPayloadReason, IncompleteReason, SkipReason
from schemas.record import MAX_TEXT

_MAX_REPEATS: Final = 4096
_FEW: Final = 64
_NEVER: Final = 1 << 62
_WHOLE_OBJECTS: Final = ("chat.completion", "response")
# Members of enumerations are dear to look up (CPython 3.11).
_CHUNK, _SEGMENT, _END, _WHOLE = EventKind.CHUNK, EventKind.SEGMENT, EventKind.END, EventKind.WHOLE
_STREAMED: Final = (Shape.CHUNK, Shape.API_EVENT)
_WHOLE_BODY: Final = Shape.WHOLE
_NO_RESPONSE: Final = (Shape.UNKNOWN, Shape.UNRELATED)

RequestKey = str | tuple[str, str]


class Arrival(Struct, gc=False):
    """Where and when an event came.

    Attributes:
        place: offset of its message, and its index in there.
        timestamp: Kafka timestamp of the message, milliseconds since 1970, or -1.
        born: stream time where the current block begins.
        headers: returns the message's headers; dear, and called only when a request opens.

    """

    place: EventPlace
    timestamp: int
    born: BlockState
    headers: Callable[[], Headers | None]


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt at a request: open, or finished and still known.

    There may be a million: what most have alike is kept once, and what few have is made when it is
    needed. One that the short way can follow is at rest, and is roused before anything else looks
    at what it has facts or seen.
    """

    key: RequestKey
    number: int
    begun: EventPlace | None  # The session, where an earlier attempt began it.
    offset: int  # Of the first event, whose place this and the next one are.
    index: int
    timestamp: int
    born: BlockState
    active: BlockState  # Block of the last new event,
    within: int  # and how far in there it is: a small number, which takes no memory.
    heard: BlockState  # Of the latest attempt, if later: block of the request's last repeat.
    facts: ResponseFacts = field(default_factory=ResponseFacts)
    owed: bool = True  # Whether its outcome is still to be told.
    open: bool = True
    arrivals: int = 0
    first_digest: int | None = None  # Of the event of sequence 0.
    started: int | None = None  # Known together with the next one, or not at all.
    completed: int | None = None
    final: bool = False
    context: Context | None = None
    next: int | None = None  # Sequence that comes next, as long as all have come in order;
    seen: SeenSequences | None = None  # what has come, if they have not.
    segments: Segments | None = None
    behind: bool = False  # Whether re-reading need not reach back to its first event.
    follows: str | None = None  # Id of chunks that, next in order, can bring nothing but content.

    @property
    def place(self) -> EventPlace:
        """Place of the first event."""
        return self.offset, self.index

    @property
    def session(self) -> EventPlace:
        """Place of the first event of the request's first attempt that is known."""
        return self.begun or (self.offset, self.index)

    @property
    def last_offset(self) -> int:
        """Offset of the last new event."""
        return self.active.offset + self.within

    def __lt__(self, other: "Attempt") -> bool:
        """Order those that heaps list at one offset."""
        return self.place < other.place


Listed = tuple[int, Attempt]  # An entry of a heap; the offset may lag.


class Reassembler:
    """The requests of one partition.

    Args:
        body_reader: folds documents.
        limits: what bounds the state.
        listed: places of open requests in the checkpoint that is being resumed; as long as
            `go_live` has not been called, they are the truth of what was open, everything else is
            only remembered, and nothing is told.

    """

    def __init__(
        self, body_reader: BodyReader, limits: Limits, listed: Iterable[EventPlace] | None = None
    ) -> None:
        self._body_reader = body_reader
        self._limits = limits
        self._unmet: set[EventPlace] = set(listed or ())
        self._listed = deque(sorted({offset for offset, _ in self._unmet}))
        self._resumed: set[EventPlace] = set()  # Sessions of requests that the list says were open.
        self.live = listed is None
        self._room, self._bits = open_budget(limits.max_reread)
        self._first_bits = self._bits + place_bits(0)
        self._used = 0
        self._time_began: int | None = None
        self._latest: dict[RequestKey, Attempt] = {}
        self._older: dict[
            tuple[RequestKey, int], Attempt
        ] = {}  # Earlier attempts, by their number.
        self._begun: deque[Attempt] = (
            deque()
        )  # Within `max_reread`, in order, and some left behind.
        self._behind = 0
        self._idle: list[Listed] = []  # A heap: longest idle first.
        self._idle_since = 0  # Nobody has been idle since before this stream time.
        self._open_count = 0
        self._unheard: list[Listed] = []  # A heap of latest attempts: longest unheard first.
        self._repeats: OrderedDict[int, EventPlace] = OrderedDict()
        self._unsure_until: int | None = None  # Stream time until which a restart may matter.
        self.possible_repeats = 0
        self.told: list[Response] = []

    @property
    def open_count(self) -> int:
        """Return how many requests are open."""
        return self._open_count

    @property
    def oldest_open(self) -> int | None:
        """Return stream time at which the oldest open request began, if it is known.

        Goes through all open ones.
        """
        first = self._time_began  # Of those that began before it was known.
        began = (attempt.born.now or first for _, attempt in self._idle if attempt.open)
        return min((time for time in began if time is not None), default=None)

    @property
    def start(self) -> BlockState | None:
        """Return where reading must start to find this state again; None if there is none.

        At the first event of all that is known; of what began further behind than `max_reread`, at
        the last one.
        """
        oldest, unheard = self._oldest(), self._longest_unheard()
        if oldest is None:
            return None if unheard is None else unheard.heard
        if unheard is not None and unheard.heard.offset < oldest.born.offset:
            return unheard.heard
        return oldest.born

    def next_listed(self, offset: int) -> int:
        """Return the next offset, from this one on, at which the list says that a request began."""
        while self._listed and self._listed[0] < offset:
            self._listed.popleft()
        return self._listed[0] if self._listed else sys.maxsize

    def open_places(self) -> tuple[EventPlace, ...]:
        """Return where open requests began, sorted."""
        return tuple(sorted(attempt.place for _, attempt in self._idle if attempt.open))

    def take(self, event: Event, arrival: Arrival) -> SkipReason | BadPayloadReason | None:
        """Take one event; return why it was passed over or refused, or None if it was taken."""
        kind = event.kind
        if kind is _WHOLE:
            return self._take_whole(event, arrival)
        attempt = self._attempt_of(event, arrival.place)
        if attempt is not None:
            return self._take_into(attempt, event, arrival)
        if kind is _END:
            return SkipReason.ORPHAN_END
        return self._open(event, arrival)

    def follow(
        self,
        messages: Iterable[Message],
        offset: int,
        born: BlockState,
        decode: DecodeContent,
        time_of: Callable[[str | int | None, Message], int | None],
    ) -> int:
        """Take messages for as long as each is the next content of an open stream, and no more.

        The short way of nearly all events of a log; it does what `take` would. One loop without
        calls of our own, since a call takes as long as all that is left to do here.

        Args:
            messages: messages of consecutive offsets.
            offset: offset of the first.
            born: stream time where the block begins in which they all lie.
            decode: reads an event, and raises `NOT_CONTENT` for what can say more.
            time_of: returns the time of an event that does not state it as a number.

        Returns:
            how many messages were taken.

        """
        known = self._latest.get
        first = within = offset - born.offset
        try:
            for message in messages:
                event = decode(message.value())
                attempt = known(event.request_id)
                if attempt is None or attempt.follows != event.body.id:
                    break
                sequence = event.sequence
                if sequence != attempt.next:
                    break
                time = event.timestamp
                if type(time) is not int:
                    time = time_of(time, message)
                    if time is None:
                        break
                if time > attempt.completed:  # type: ignore[operator]  # See `_follows`.
                    attempt.completed = time
                elif time < attempt.started:  # type: ignore[operator]
                    attempt.started = time
                if sequence is None:
                    attempt.arrivals += 1
                else:
                    attempt.next = sequence + 1
                attempt.active = born
                attempt.within = within
                within += 1
        except NOT_CONTENT:
            pass
        return within - first

    def advance(self, now: int | None, offset: int) -> None:
        """Close what has been idle for too long, and forget what need not be known any more.

        Called where a block ends, with stream time after it and the offset of the next one.
        """
        horizon = offset - self._limits.max_reread
        forgotten = -1
        if now is not None:
            if self._time_began is None:
                self._time_began = now
            idle = now - self._limits.idle_timeout_ms
            forgotten = idle - self._limits.duplicate_window_ms
            self._close_idle(idle)
        while (attempt := self._oldest()) and attempt.born.offset < horizon:
            if not self.live and attempt.owed:
                break
            if attempt.open:
                self._close(attempt, IncompleteReason.TOO_LONG)
            self._leave_behind(attempt)
        while attempt := self._longest_unheard():
            heard = attempt.heard
            if heard.offset >= horizon and self._since(heard) > forgotten:
                break
            if not self.live and attempt.session in self._resumed:
                break
            self._forget(attempt)

    def _close_idle(self, since: int) -> None:
        # The bound was true when it was noted, and mostly still tells that nobody can be due.
        while self._idle_since <= since and (attempt := self._longest_idle()):
            self._idle_since = self._since(attempt.active)
            if self._idle_since <= since:
                self._close(attempt, IncompleteReason.IDLE_TIMEOUT)

    def close_silent(self) -> None:
        """Close all open requests, because the partition has fallen silent."""
        while attempt := self._longest_idle():
            self._close(attempt, IncompleteReason.PARTITION_SILENT)

    def close_all(self) -> None:
        """Close all open requests as by their timeout: no more events will come."""
        while attempt := self._longest_idle():
            self._close(attempt, IncompleteReason.IDLE_TIMEOUT)

    def go_live(self, now: int | None, offset: int) -> list[EventPlace]:
        """Leave re-reading: from here on outcomes are told.

        Returns:
            listed places at which no event was met.

        """
        self.live = True
        unmet, self._unmet = sorted(self._unmet), set()
        self._resumed.clear()
        # What did not end in the stretch and is not listed had been closed for another reason.
        while attempt := self._longest_idle():
            self._settle(attempt, None)
        # Timeouts stood still for what is resumed.
        self._idle_since = 0
        for attempt in self._begun:
            if attempt.open:
                self._list_open(attempt)
        self._keep_to_bound()
        self._unsure_until = (now or 0) + self._limits.duplicate_window_ms
        self.advance(now, offset)
        return unmet

    def _since(self, block: BlockState) -> int:
        """Return stream time of an event; one before it was known counts from its beginning."""
        time = block.now if block.until is None else block.until
        if time is not None:
            return time
        return _NEVER if self._time_began is None else self._time_began

    # Which attempt an event belongs to

    def _attempt_of(self, event: Event, place: EventPlace) -> Attempt | None:
        """Find the attempt that an event belongs to; None if it opens a new one."""
        source, name = event.source, event.request_id or ""
        latest = self._latest.get((source, name) if source else name)
        if latest is None:
            return None
        attempt = self._known_attempt_of(event, latest)
        if not self._unmet or place not in self._unmet:
            return attempt
        # The list is the truth: by then, what would take the event had been closed or forgotten.
        if attempt is not None and not attempt.open:
            self._forget(latest)
        elif attempt is not None and not attempt.owed:
            self._settle(attempt, None)
        return None

    def _known_attempt_of(self, event: Event, latest: Attempt) -> Attempt | None:
        if event.attempt is not None:
            if event.attempt == latest.number:
                return latest
            older = self._older.get((latest.key, event.attempt))
            return older if older is not None and older.session == latest.session else None
        if event.sequence == 0 and latest.first_digest not in (None, crc32(event.raw)):
            return None
        if not latest.open and not latest.facts.knows(self._body_id(event)):
            return None
        return latest

    def _body_id(self, event: Event) -> str | None:
        """Return the id in an event's body, if it has one."""
        if event.facts is not None:
            return event.facts.response_id
        trial = ResponseFacts()
        if event.document is not None and event.shape not in _NO_RESPONSE:
            self._body_reader.fold_document(trial, event.document, 0, event.shape)
        elif event.kind is _SEGMENT:
            self._body_reader.fold_body(trial, event.segment)
        return trial.response_id

    # What becomes of it

    def _take_whole(self, event: Event, arrival: Arrival) -> SkipReason | None:
        """Take a response of which nothing more will come."""
        place = arrival.place
        facts = event.facts or ResponseFacts()
        incomplete = event.incomplete or _amiss(facts) or _unended(facts)
        owed = self.live or place in self._unmet
        number = event.attempt
        if event.request_id is not None:
            if self._is_repeat(event, place):
                return SkipReason.REPEATED_RESPONSE
            attempt = self._attempt_of(event, place)
            if attempt is not None:
                self._hear(attempt, arrival.born)
                if not attempt.open:
                    return SkipReason.LATE_REPEAT
                _rouse(attempt)
                attempt.facts, attempt.segments, attempt.final = facts, None, True
                _note_around(attempt, event)
                _note_place(attempt, arrival)
                self._finish(attempt, incomplete)
                return None
            if number is None:
                number = self._next_number(_key_of(event))
        self._unmet.discard(place)
        if owed:
            self._count_if_unsure(arrival.born.now)
            response = Response(
                event.source,
                event.request_id,
                number or 0,
                place,
                place[0],
                arrival.timestamp,
                event.time,
                event.time,
                _with_trace(event.context, arrival.headers),
                facts,
                event.failed or facts.failed,
                incomplete,
            )
            self.told.append(response)
        return None

    def _open(self, event: Event, arrival: Arrival) -> SkipReason | BadPayloadReason | None:
        """Open a request with its first event, unless that event is all of it."""
        alone = event.kind is _CHUNK and event.sequence is None and not event.failed
        if alone and event.shape in _NO_RESPONSE:
            if event.shape is Shape.UNRELATED:
                return SkipReason.UNRELATED_BODY
            return BadPayloadReason.BODY_NOT_A_RESPONSE
        attempt = self._new_attempt(event, arrival)
        listed = arrival.place in self._unmet
        self._unmet.discard(arrival.place)
        attempt.owed = self.live or listed
        self._fold(attempt, event)
        finished = _is_finished(attempt)
        if finished and not event.sequence and not listed:
            return self._take_at_once(attempt, event, arrival)
        attempt.context = _with_trace(attempt.context, arrival.headers)
        self._register(attempt)
        if finished:
            self._finish(attempt, None)
        else:
            _rest(attempt)
        return None

    def _take_at_once(
        self, attempt: Attempt, event: Event, arrival: Arrival
    ) -> SkipReason | BadPayloadReason | None:
        """Take an attempt whose first event is all of it; it is never open.

        In the stretch that is read again, it may be the end of what began before the stretch.
        """
        if self.live and self._is_repeat(event, arrival.place):
            return SkipReason.REPEATED_RESPONSE
        incomplete = self._flush(attempt)
        if incomplete is None and not attempt.facts.failed and not attempt.facts.documents:
            chunk = event.kind is _CHUNK
            return BadPayloadReason.BODY_NOT_A_RESPONSE if chunk else SkipReason.ORPHAN_END
        if attempt.owed:
            self._count_if_unsure(attempt.born.now)
            attempt.context = _with_trace(attempt.context, arrival.headers)
            self.told.append(_response(attempt, incomplete))
        return None

    def _new_attempt(self, event: Event, arrival: Arrival) -> Attempt:
        place, born = arrival.place, arrival.born
        key = _key_of(event)
        latest = self._latest.get(key)
        number = event.attempt
        if number is None:
            number = 0 if latest is None else latest.number + 1
        return Attempt(
            key,
            number,
            None if latest is None else latest.session,
            *place,
            arrival.timestamp,
            born,
            born,
            place[0] - born.offset,
            born,
        )

    def _next_number(self, key: RequestKey) -> int:
        latest = self._latest.get(key)
        return 0 if latest is None else latest.number + 1

    def _register(self, attempt: Attempt) -> None:
        latest = self._latest.get(attempt.key)
        if latest is not None:
            self._older[latest.key, latest.number] = latest
        self._latest[attempt.key] = attempt
        if 2 * self._behind > len(self._begun) + _FEW:
            self._begun = deque(each for each in self._begun if not each.behind)
            self._behind = 0
        self._begun.append(attempt)
        if self.live or not attempt.owed:
            self._list_open(attempt)
        else:
            self._resumed.add(attempt.session)
        self._used += self._cost(attempt)
        if self._used > self._room and self.live:
            self._keep_to_bound()

    def _cost(self, attempt: Attempt) -> int:
        index = attempt.index
        return self._bits + place_bits(index) if index else self._first_bits

    # Order: an event of an open request costs nothing here, and moves its place in a heap only
    # when somebody asks for the first.

    def _list_open(self, attempt: Attempt) -> None:
        self._open_count += 1
        if len(self._idle) > 2 * self._open_count + _FEW:
            self._idle = [listed for listed in self._idle if listed[1].open]
            heapify(self._idle)
        heappush(self._idle, (attempt.offset, attempt))

    def _longest_idle(self) -> Attempt | None:
        """Return the open attempt whose last new event lies furthest behind."""
        heap = self._idle
        while heap:
            offset, attempt = heap[0]
            if not attempt.open:
                heappop(heap)
            elif attempt.last_offset != offset:
                heapreplace(heap, (attempt.last_offset, attempt))
            else:
                return attempt
        return None

    def _longest_unheard(self) -> Attempt | None:
        """Return the finished attempt whose request was heard of longest ago; open ones are not."""
        heap = self._unheard
        while heap:
            offset, attempt = heap[0]
            if self._latest.get(attempt.key) is not attempt:
                heappop(heap)
            elif attempt.heard.offset != offset:
                heapreplace(heap, (attempt.heard.offset, attempt))
            else:
                return attempt
        return None

    def _keep_to_bound(self) -> None:
        """Close the longest idle while there are more open than a checkpoint holds."""
        while self._used > self._room and (attempt := self._longest_idle()):
            self._close(attempt, IncompleteReason.BOUND)

    def _take_into(self, attempt: Attempt, event: Event, arrival: Arrival) -> SkipReason | None:
        """Take an event of a request that is known."""
        self._hear(attempt, arrival.born)
        if not attempt.open:
            return SkipReason.LATE_REPEAT
        _rouse(attempt)
        if event.sequence is not None and _has_come(attempt, event.sequence):
            return SkipReason.DUPLICATE
        self._fold(attempt, event)
        _note_place(attempt, arrival)
        if _is_finished(attempt):
            self._finish(attempt, None)
        else:
            _rest(attempt)
        return None

    def _hear(self, attempt: Attempt, born: BlockState) -> None:
        """Note an event of any kind: from here on, the request stays known for its full time.

        Were repeats left out here, what is known would depend on events before any start.
        """
        self._latest[attempt.key].heard = born

    def _fold(self, attempt: Attempt, event: Event) -> None:
        """Fold an event into its attempt."""
        order = _placed(attempt, event)
        _note_around(attempt, event)
        facts, kind = attempt.facts, event.kind
        ended, end = event.final or kind is _END, event.sequence
        if kind is _CHUNK:
            before = facts.ended
            self._take_chunk(facts, event, order)
            ended = ended or facts.ended != before
        elif kind is _SEGMENT:
            self._hold(attempt, order, event.segment)
        if attempt.segments is not None:
            last = self._release(attempt, attempt.segments)
            if last is not None:
                ended, end = True, last if event.sequence is not None else None
        if ended:
            attempt.final = True
            if attempt.seen is not None:
                attempt.seen.mark_end(end)

    def _release(self, attempt: Attempt, segments: Segments) -> int | None:
        """Fold in the segments before which all has come; return the order of one that ends."""
        below = attempt.next
        if below is None:
            below = attempt.arrivals if attempt.seen is None else attempt.seen.next
        return segments.release(
            below, self._body_reader, attempt.facts, self._limits.max_inflated_bytes
        )

    def _take_chunk(self, facts: ResponseFacts, event: Event, order: int) -> None:
        document, shape = event.document, event.shape
        if document is None or shape in _NO_RESPONSE:
            return  # A ping of some kind: it counts for the order, and says nothing.
        self._body_reader.fold_document(facts, document, order << PIECE_BITS, shape)
        if shape in _STREAMED:
            facts.streamed = True
        elif shape is _WHOLE_BODY:
            # Inside a stream, the last chunk of some APIs looks like a whole body and is none.
            alone = facts.documents == 1 and event.sequence is None
            facts.ended = facts.ended or alone or document.object in _WHOLE_OBJECTS

    def _hold(self, attempt: Attempt, order: int, segment: bytes) -> None:
        if attempt.segments is None:
            attempt.segments = Segments(self._limits.max_segment_bytes)
        attempt.segments.hold(order, segment)

    def _finish(self, attempt: Attempt, incomplete: IncompleteReason | None) -> None:
        """Settle a request whose end has come."""
        amiss = self._flush(attempt)
        self._settle(attempt, amiss or incomplete)

    def _close(self, attempt: Attempt, reason: IncompleteReason) -> None:
        """Settle a request whose end was not seen."""
        if reason is IncompleteReason.IDLE_TIMEOUT and attempt.seen and attempt.seen.has_gap:
            reason = IncompleteReason.GAP
        overflowed = self._flush(attempt) is IncompleteReason.SEGMENT_OVERFLOW
        self._settle(attempt, IncompleteReason.SEGMENT_OVERFLOW if overflowed else reason)

    def _flush(self, attempt: Attempt) -> IncompleteReason | None:
        """Fold in what segments still hold, since no more will come; return what is amiss."""
        segments, attempt.segments = attempt.segments, None
        if segments is not None:
            if segments.overflowed:
                return IncompleteReason.SEGMENT_OVERFLOW
            segments.finish(self._body_reader, attempt.facts, self._limits.max_inflated_bytes)
        return _amiss(attempt.facts)

    def _settle(self, attempt: Attempt, incomplete: IncompleteReason | None) -> None:
        """Tell the outcome of an open request, and keep only what recognises its repeats."""
        _rouse(attempt)
        facts = attempt.facts
        if attempt.owed:
            self.told.append(_response(attempt, incomplete))
        attempt.facts = ResponseFacts(
            facts.response_id, facts.other_ids, ended=attempt.final, failed=facts.failed
        )
        attempt.context = attempt.segments = None
        attempt.seen = attempt.next = None
        if self.live or not attempt.owed:
            self._open_count -= 1
        attempt.owed = attempt.open = False
        if attempt.active.offset > attempt.heard.offset:
            attempt.heard = attempt.active
        if self._latest.get(attempt.key) is attempt:
            heappush(self._unheard, (attempt.heard.offset, attempt))
        self._used -= self._cost(attempt)

    # What is forgotten

    def _oldest(self) -> Attempt | None:
        """Return the known attempt whose first event lies furthest behind, within `max_reread`."""
        begun = self._begun
        while begun and (begun[0].behind or self._is_forgotten(begun[0])):
            self._leave_behind(begun[0])
            begun.popleft()
            self._behind -= 1
        return begun[0] if begun else None

    def _is_forgotten(self, attempt: Attempt) -> bool:
        """Tell whether the request of an attempt has been forgotten, and perhaps begun anew."""
        latest = self._latest.get(attempt.key)
        return not attempt.open and (latest is None or latest.session != attempt.session)

    def _forget(self, latest: Attempt) -> None:
        """Forget a request; its earlier attempts go when they are the oldest."""
        del self._latest[latest.key]
        self._leave_behind(latest)

    def _leave_behind(self, attempt: Attempt) -> None:
        """Let re-reading no longer reach back to an attempt."""
        if not attempt.behind:
            attempt.behind = True
            self._behind += 1
        if self._older.get((attempt.key, attempt.number)) is attempt:
            del self._older[attempt.key, attempt.number]

    def _is_repeat(self, event: Event, place: EventPlace) -> bool:
        """Tell whether a whole response was seen at another place, and remember it if not.

        The digest is Python's own: as fast as reading the bytes, and never leaves the process.
        """
        digest = hash((event.source, event.request_id, event.raw))
        first = self._repeats.setdefault(digest, place)
        if len(self._repeats) > _MAX_REPEATS:
            self._repeats.popitem(last=False)
        return first != place

    def _count_if_unsure(self, now: int | None) -> None:
        """Count a whole response that may repeat one which a restart has forgotten."""
        if self._unsure_until is None:
            return
        if now is None or now < self._unsure_until:
            self.possible_repeats += 1
        else:
            self._unsure_until = None


def _key_of(event: Event) -> RequestKey:
    request_id = event.request_id or ""
    return (event.source, request_id) if event.source else request_id


def _placed(attempt: Attempt, event: Event) -> int:
    """Note that an event has come, and return its place among those of its attempt."""
    if event.sequence is None:
        attempt.arrivals += 1
        return attempt.arrivals - 1
    if event.sequence == 0:
        attempt.first_digest = crc32(event.raw)
    if attempt.seen is None:
        if event.sequence == (attempt.next or 0):
            attempt.next = event.sequence + 1
            return event.sequence
        attempt.seen, attempt.next = SeenSequences(attempt.next or 0), None
    attempt.seen.add(event.sequence)
    return event.sequence


def _has_come(attempt: Attempt, sequence: int) -> bool:
    if attempt.next is not None:
        return sequence < attempt.next
    return attempt.seen is not None and attempt.seen.has(sequence)


def _rest(attempt: Attempt) -> None:
    """Keep what the next event needs, until `_rouse` undoes it.

    The short way counts `next` alone; what is ahead of a gap is put down when it is over. A
    response that has brought nothing but content is told from others by its id alone.
    """
    seen = attempt.seen
    if seen is not None and seen.in_order:
        attempt.next, attempt.seen = seen.next, None
    name = _follows(attempt)
    if name is None:
        return
    if attempt.seen is not None:
        attempt.next = attempt.seen.top
    if attempt.facts.stats is None:
        attempt.facts.response_id = None
        attempt.facts = _alike(astuple(attempt.facts))
    attempt.follows = name


def _rouse(attempt: Attempt) -> None:
    """Make an attempt whole again, for any other way than the short one."""
    name, attempt.follows = attempt.follows, None
    if name is None:
        return
    attempt.facts = replace(attempt.facts, response_id=name)
    if attempt.seen is not None and attempt.next is not None:
        attempt.seen.reach(attempt.next)
        attempt.next = None


@lru_cache(maxsize=1024)
def _alike(members: tuple[Any, ...]) -> ResponseFacts:
    """Return what responses have alike that differ in their id alone; nobody may change it."""
    return ResponseFacts(*members)


def _follows(attempt: Attempt) -> str | None:
    """Return the body id of chunks that, next in order, can bring an attempt nothing but content.

    Whatever else such a chunk could set is set by an earlier one, and nothing waits for it.
    """
    facts, following = attempt.facts, attempt.next
    if attempt.seen is not None:
        following = attempt.seen.top or 0
    if (
        attempt.segments is not None
        or attempt.completed is None
        or facts.model is None
        or not facts.choices
        or not facts.streamed
        or len(facts.response_id or "") >= MAX_TEXT
        or (following is not None and (attempt.arrivals or not following))
    ):
        return None
    return facts.response_id


def _note_place(attempt: Attempt, arrival: Arrival) -> None:
    """Take where a new event came."""
    attempt.active = arrival.born
    attempt.within = arrival.place[0] - arrival.born.offset


def _note_around(attempt: Attempt, event: Event) -> None:
    """Take what the envelope says."""
    if event.time is not None:
        if attempt.started is None or event.time < attempt.started:
            attempt.started = event.time
        if attempt.completed is None or event.time > attempt.completed:
            attempt.completed = event.time
    if event.context is not None and event.context != attempt.context:
        attempt.context = _merged(attempt.context, event.context)
    if event.failed:
        attempt.facts.failed = True


def _is_finished(attempt: Attempt) -> bool:
    if attempt.facts.failed:
        return True
    return attempt.seen.complete if attempt.seen is not None else attempt.final


def _amiss(facts: ResponseFacts) -> IncompleteReason | None:
    """Return what is amiss with a response that has ended."""
    if facts.truncated:
        return IncompleteReason.TRUNCATED
    return IncompleteReason.DAMAGED if facts.damaged else None


def _unended(facts: ResponseFacts) -> IncompleteReason | None:
    return None if facts.ended or facts.failed else IncompleteReason.NO_TERMINATOR


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


def _with_trace(context: Context | None, headers: Callable[[], Headers | None]) -> Context | None:
    """Take the trace from the message's headers, unless the event has one."""
    if context is not None and context.traceparent is not None:
        return context
    read = headers_of(headers)
    trace = trace_of(read) if read else None
    if trace is None:
        return context
    known = context or Context()
    return Context(known.model, known.instance, known.endpoint, known.labels, trace)


def _response(attempt: Attempt, incomplete: IncompleteReason | None) -> Response:
    source, request_id = attempt.key if isinstance(attempt.key, tuple) else ("", attempt.key)
    return Response(
        source,
        request_id,
        attempt.number,
        attempt.place,
        attempt.last_offset,
        attempt.timestamp,
        attempt.started,
        attempt.completed,
        attempt.context,
        attempt.facts,
        attempt.facts.failed,
        incomplete,
    )
