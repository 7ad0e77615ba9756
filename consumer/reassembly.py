"""From response events to finished responses: what is known of one partition's requests.

A request is open from its first event to its end, and stays known for a while after, so that late
repeats neither reopen it nor publish it twice. A response that is complete with its first event is
never open. Nothing here reads a clock: time is stream time, and so is a function of the log.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from consumer.bodies.documents import Shape
from consumer.bodies.gather import Gathered, Gatherer
from consumer.checkpoint import Place, open_budget, place_bits
from consumer.events import Context, Event, Kind
from consumer.segments import PIECE_BITS, Segments
from consumer.sequence import Seen
from consumer.stream_time import BlockState
from schemas import BadPayloadReason, IncompleteReason, SkipReason

_MOST_REPEATS: Final = 4096
_NEVER: Final = 1 << 62
_WHOLE_OBJECTS: Final = ("chat.completion", "response")

Key = str | tuple[str, str]


class Limits(Struct, frozen=True):
    """Settings that shape what is known; a checkpoint holds only under the same ones.

    Attributes:
        idle_timeout_ms: an open request without a new event for this long is closed.
        duplicate_window_ms: a request stays known for this much longer.
        max_reread: a request whose first event lies further behind, in messages, is let go.
        max_segment_bytes: most bytes held of one request's raw segments.
        max_inflated_bytes: most bytes that a compressed body may have.

    """

    idle_timeout_ms: int = 120_000
    duplicate_window_ms: int = 60_000
    max_reread: int = 2_000_000
    max_segment_bytes: int = 1 << 20
    max_inflated_bytes: int = 16 << 20


class Response(Struct):
    """A response that is finished, or given up.

    Attributes:
        place: offset and index of its first event.
        last_offset: offset of its last new event.
        timestamp: Kafka timestamp of its first message, milliseconds since 1970, or -1.
        started: earliest time of an event, milliseconds since 1970.
        completed: latest time of an event.
        gathered: what it says; None if its events are gone.
        incomplete: why its end was not seen, or None.

    """

    source: str
    request_id: str | None
    attempt: int
    place: Place
    last_offset: int
    timestamp: int
    started: int | None
    completed: int | None
    context: Context | None
    gathered: Gathered | None
    failed: bool = False
    incomplete: IncompleteReason | None = None


class Attempt(Struct, gc=False):
    """One attempt at a request: open, or finished and still known."""

    key: Key
    source: str
    request_id: str
    number: int
    place: Place
    timestamp: int
    born: BlockState
    last_place: Place
    active: int | None  # Stream time of the last new event.
    gathered: Gathered = msgspec.field(default_factory=Gathered)
    owed: bool = True  # Whether its outcome is still to be told.
    open: bool = True
    known: bool = True
    arrivals: int = 0
    first_digest: int | None = None  # Of the event of sequence 0.
    started: int | None = None
    completed: int | None = None
    failed: bool = False
    final: bool = False
    context: Context | None = None
    seen: Seen | None = None
    segments: Segments | None = None
    older: "Attempt | None" = None


class Reassembly:
    """The requests of one partition.

    Args:
        gatherer: folds documents.
        limits: what bounds the state.
        listed: places of open requests in the checkpoint that is being resumed; as long as
            `go_live` has not been called, they are the truth of what was open, everything else is
            only remembered, and nothing is told.

    """

    def __init__(
        self, gatherer: Gatherer, limits: Limits, listed: Iterable[Place] | None = None
    ) -> None:
        self._gatherer = gatherer
        self._limits = limits
        self._unmet: set[Place] = set(listed or ())
        self.live = listed is None
        self._room, self._bits = open_budget(limits.max_reread)
        self._used = 0
        self._timed = False
        self._heads: dict[Key, Attempt] = {}
        self._known: OrderedDict[Place, Attempt] = OrderedDict()  # In order of first events.
        self._idle: OrderedDict[Place, Attempt] = OrderedDict()  # Open, longest idle first.
        self._done: deque[Attempt] = deque()  # Finished by an event, in order of that.
        self._closed: deque[Attempt] = deque()  # Closed while idle, in order of their last event.
        self._repeats: OrderedDict[int, Place] = OrderedDict()
        self.told: list[Response] = []

    @property
    def open_count(self) -> int:
        """Return how many requests are open."""
        return len(self._idle)

    @property
    def oldest(self) -> Attempt | None:
        """Return the request, open or finished, whose first event lies furthest behind."""
        return next(iter(self._known.values()), None)

    def open_places(self) -> tuple[Place, ...]:
        """Return where open requests began, sorted."""
        return tuple(sorted(self._idle))

    def knows(self, source: str, request_id: str) -> bool:
        """Tell whether a request is open, or finished and still known."""
        return _key(source, request_id) in self._heads

    def take(
        self, event: Event, place: Place, timestamp: int, born: BlockState
    ) -> SkipReason | BadPayloadReason | None:
        """Take one event.

        Args:
            event: the event.
            place: offset of its message, and its index in there.
            timestamp: Kafka timestamp of the message, milliseconds since 1970, or -1.
            born: stream time where the current block begins.

        Returns:
            why the event was passed over or refused, or None if it was taken.

        """
        if event.time is None and timestamp >= 0:
            event.time = timestamp
        if event.kind is Kind.WHOLE:
            return self._take_whole(event, place, timestamp)
        attempt = self._attempt_of(event, place)
        if isinstance(attempt, SkipReason):
            return attempt
        if attempt is not None:
            return self._take_into(attempt, event, place, born.now)
        return self._open(event, place, timestamp, born)

    def advance(self, now: int | None, offset: int) -> None:
        """Close what has been idle for too long, and forget what need not be known any more.

        Called where a block ends, with stream time after it and the next message's offset.
        """
        if now is not None:
            self._begin_time(now)
            idle = now - self._limits.idle_timeout_ms
            while (attempt := _first(self._idle)) and _active(attempt) <= idle:
                self._close(attempt, IncompleteReason.IDLE_TIMEOUT)
            forgotten = idle - self._limits.duplicate_window_ms
            for queue in (self._done, self._closed):
                while queue and (not queue[0].known or _active(queue[0]) <= forgotten):
                    self._forget(queue.popleft())
        while (attempt := self.oldest) and attempt.place[0] < offset - self._limits.max_reread:
            if attempt.open and not self._is_resumed(attempt):
                self._close(attempt, IncompleteReason.TOO_LONG)
            elif attempt.open:
                break
            self._forget(attempt)

    def close_silent(self) -> None:
        """Close all open requests, because the partition has fallen silent."""
        while attempt := _first(self._idle):
            self._close(attempt, IncompleteReason.PARTITION_SILENT)

    def close_all(self) -> None:
        """Close all open requests as by their timeout: no more events will come."""
        while attempt := _first(self._idle):
            self._close(attempt, IncompleteReason.IDLE_TIMEOUT)

    def go_live(self, now: int | None, offset: int) -> list[Place]:
        """Leave re-reading: from here on outcomes are told.

        Returns:
            listed places at which no event was met.

        """
        self.live = True
        unmet, self._unmet = sorted(self._unmet), set()
        # Timeouts stood still for what is resumed; order by the last event is restored.
        still_open = sorted(
            (attempt for attempt in self._known.values() if attempt.open),
            key=lambda attempt: attempt.last_place,
        )
        self._idle = OrderedDict((attempt.place, attempt) for attempt in still_open)
        for attempt in still_open:
            if not attempt.owed:
                self._close(attempt, None)
        self.advance(now, offset)
        return unmet

    def _begin_time(self, now: int) -> None:
        """Let what came before stream time was known count from its beginning."""
        if not self._timed:
            self._timed = True
            for attempt in self._known.values():
                if attempt.active is None:
                    attempt.active = now

    def _is_resumed(self, attempt: Attempt) -> bool:
        return not self.live and attempt.owed

    def _attempt_of(self, event: Event, place: Place) -> Attempt | SkipReason | None:
        """Find the attempt that an event belongs to; None if it opens a new one."""
        if place in self._unmet:
            return None
        latest = self._heads.get(_key(event.source, event.request_id or ""))
        if latest is None:
            return SkipReason.ORPHAN_END if event.kind is Kind.END else None
        if event.attempt is not None:
            attempt: Attempt | None = latest
            while attempt is not None and attempt.number != event.attempt:
                attempt = attempt.older
            if attempt is None and event.kind is Kind.END:
                return SkipReason.ORPHAN_END
            return attempt
        if event.sequence == 0 and latest.first_digest not in (None, hash(event.raw)):
            return None
        if not latest.open and not latest.gathered.knows(self._body_id(event)):
            return None
        return latest

    def _body_id(self, event: Event) -> str | None:
        """Return the id in an event's body, if it has one."""
        if event.document is not None:
            return event.document.id or event.document.request_id
        if event.kind is Kind.SEGMENT:
            trial = Gathered()
            self._gatherer.take_body(trial, event.segment)
            return trial.response_id
        return None

    def _take_whole(self, event: Event, place: Place, timestamp: int) -> SkipReason | None:
        """Take a response of which nothing more will come."""
        gathered = event.gathered or Gathered()
        number = event.attempt
        if event.request_id is not None:
            if self._is_repeat(event, place):
                return SkipReason.REPEATED_RESPONSE
            latest = self._heads.get(_key(event.source, event.request_id))
            if latest is not None and latest.open:
                latest.gathered = gathered
                latest.last_place = place
                self._finish(latest)
                return None
            if latest is not None and latest.gathered.knows(gathered.response_id):
                return SkipReason.LATE_REPEAT
            if latest is not None and number is None:
                number = latest.number + 1
        if self.live:
            response = Response(
                event.source,
                event.request_id,
                number or 0,
                place,
                place[0],
                timestamp,
                event.time,
                event.time,
                event.context,
                gathered,
                event.failed or gathered.failed,
                event.incomplete or _amiss(gathered) or _unended(gathered),
            )
            self.told.append(response)
        return None

    def _open(
        self, event: Event, place: Place, timestamp: int, born: BlockState
    ) -> SkipReason | BadPayloadReason | None:
        """Open a request with its first event, unless that event is all of it."""
        if event.kind is Kind.CHUNK and event.sequence is None:
            if event.shape is Shape.UNRELATED:
                return SkipReason.UNRELATED_BODY
            if event.shape is Shape.UNKNOWN:
                return BadPayloadReason.BODY_NOT_A_RESPONSE
        request_id = event.request_id or ""
        key = _key(event.source, request_id)
        latest = self._heads.get(key)
        number = event.attempt
        if number is None:
            number = latest.number + 1 if latest is not None else 0
        attempt = Attempt(
            key, event.source, request_id, number, place, timestamp, born, place, born.now
        )
        listed = place in self._unmet
        self._unmet.discard(place)
        attempt.owed = self.live or listed
        self._fold(attempt, event)
        if _is_finished(attempt) and not listed:
            if self._is_repeat(event, place):
                return SkipReason.REPEATED_RESPONSE
            self._flush(attempt)
            if self.live:
                self.told.append(_response(attempt, _amiss(attempt.gathered)))
            return None
        self._register(attempt, latest)
        if _is_finished(attempt):
            self._finish(attempt)
        return None

    def _register(self, attempt: Attempt, latest: Attempt | None) -> None:
        attempt.older = latest
        self._heads[attempt.key] = attempt
        self._known[attempt.place] = attempt
        if not self._is_resumed(attempt):
            self._idle[attempt.place] = attempt
        self._used += self._bits + place_bits(attempt.place[1])
        while self._used > self._room and (idlest := _first(self._idle)):
            self._close(idlest, IncompleteReason.BOUND)

    def _take_into(
        self, attempt: Attempt, event: Event, place: Place, now: int | None
    ) -> SkipReason | None:
        """Take an event of a request that is known."""
        if not attempt.open:
            return SkipReason.LATE_REPEAT
        if event.sequence is not None and attempt.seen and attempt.seen.has(event.sequence):
            return SkipReason.DUPLICATE
        self._fold(attempt, event)
        attempt.last_place = place
        attempt.active = now
        if not self._is_resumed(attempt):
            self._idle.move_to_end(attempt.place)
        if _is_finished(attempt):
            self._finish(attempt)
        return None

    def _fold(self, attempt: Attempt, event: Event) -> None:
        """Fold an event into its attempt."""
        order = _placed(attempt, event)
        _note_around(attempt, event)
        ended = event.final or event.kind is Kind.END
        end = event.sequence
        if event.kind is Kind.CHUNK:
            before = attempt.gathered.ended
            self._take_chunk(attempt, event, order)
            ended = ended or attempt.gathered.ended != before
        elif event.kind is Kind.SEGMENT:
            self._hold(attempt, order, event.segment)
        if attempt.segments is not None:
            below = attempt.seen.next if attempt.seen is not None else attempt.arrivals
            last = attempt.segments.release(
                below, self._gatherer, attempt.gathered, self._limits.max_inflated_bytes
            )
            if last is not None:
                ended, end = True, last if event.sequence is not None else None
        if ended:
            attempt.final = True
            if attempt.seen is not None:
                attempt.seen.mark_end(end)

    def _take_chunk(self, attempt: Attempt, event: Event, order: int) -> None:
        gathered, document, shape = attempt.gathered, event.document, event.shape
        if document is None or shape in (Shape.UNKNOWN, Shape.UNRELATED):
            return  # A ping of some kind: it counts for the order, and says nothing.
        self._gatherer.take(gathered, document, order << PIECE_BITS, shape)
        if shape in (Shape.CHUNK, Shape.API_EVENT):
            gathered.streamed = True
        elif shape is Shape.WHOLE:
            # Inside a stream, the last chunk of some APIs looks like a whole body and is none.
            alone = gathered.documents == 1 and event.sequence is None
            gathered.ended = gathered.ended or alone or document.object in _WHOLE_OBJECTS

    def _hold(self, attempt: Attempt, order: int, segment: bytes) -> None:
        if attempt.segments is None:
            attempt.segments = Segments(self._limits.max_segment_bytes)
        attempt.segments.hold(order, segment)

    def _finish(self, attempt: Attempt) -> None:
        """Settle a request whose end has come."""
        self._flush(attempt)
        self._settle(attempt, _amiss(attempt.gathered))
        self._done.append(attempt)

    def _close(self, attempt: Attempt, reason: IncompleteReason | None) -> None:
        """Settle a request whose end was not seen."""
        if reason is IncompleteReason.IDLE_TIMEOUT and attempt.seen and attempt.seen.has_gap:
            reason = IncompleteReason.GAP
        if attempt.segments is not None and attempt.segments.overflowed:
            reason = IncompleteReason.SEGMENT_OVERFLOW
        self._flush(attempt)
        self._settle(attempt, reason)
        self._closed.append(attempt)

    def _flush(self, attempt: Attempt) -> None:
        """Fold in what segments still hold, since no more will come."""
        if attempt.segments is not None:
            attempt.segments.finish(
                self._gatherer, attempt.gathered, self._limits.max_inflated_bytes
            )
            attempt.segments = None

    def _settle(self, attempt: Attempt, incomplete: IncompleteReason | None) -> None:
        """Tell the outcome of an open request, and keep only what recognises its repeats."""
        if attempt.owed:
            self.told.append(_response(attempt, incomplete))
        attempt.gathered = Gathered(ids=attempt.gathered.ids)
        attempt.context = None
        attempt.owed = attempt.open = False
        self._idle.pop(attempt.place, None)
        self._used -= self._bits + place_bits(attempt.place[1])

    def _forget(self, attempt: Attempt) -> None:
        if not attempt.known:
            return
        attempt.known = False
        self._known.pop(attempt.place, None)
        head = self._heads.get(attempt.key)
        if head is attempt:
            if attempt.older is not None and attempt.older.known:
                self._heads[attempt.key] = attempt.older
            else:
                del self._heads[attempt.key]
        while head is not None:  # Cut what is forgotten off the chain of attempts.
            if head.older is not None and not head.older.known:
                head.older = head.older.older
            else:
                head = head.older

    def _is_repeat(self, event: Event, place: Place) -> bool:
        """Tell whether a whole response was seen at another place, and remember it if not.

        The digest is Python's own: as fast as reading the bytes, and never leaves the process.
        """
        digest = hash((event.source, event.request_id, event.raw))
        first = self._repeats.setdefault(digest, place)
        if len(self._repeats) > _MOST_REPEATS:
            self._repeats.popitem(last=False)
        return first != place


def _key(source: str, request_id: str) -> Key:
    return (source, request_id) if source else request_id


def _first(attempts: OrderedDict[Place, Attempt]) -> Attempt | None:
    return next(iter(attempts.values()), None)


def _active(attempt: Attempt) -> int:
    return attempt.active if attempt.active is not None else _NEVER


def _placed(attempt: Attempt, event: Event) -> int:
    """Note that an event has come, and return its place among those of its attempt."""
    if event.sequence is None:
        attempt.arrivals += 1
        return attempt.arrivals - 1
    if event.sequence == 0:
        attempt.first_digest = hash(event.raw)
    if attempt.seen is None:
        attempt.seen = Seen()
    attempt.seen.add(event.sequence)
    return event.sequence


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
        attempt.failed = True


def _is_finished(attempt: Attempt) -> bool:
    if attempt.failed or attempt.gathered.failed:
        return True
    return attempt.seen.complete if attempt.seen is not None else attempt.final


def _amiss(gathered: Gathered) -> IncompleteReason | None:
    """Return what is amiss with a response that has ended."""
    if gathered.truncated:
        return IncompleteReason.TRUNCATED
    return IncompleteReason.DAMAGED if gathered.damaged else None


def _unended(gathered: Gathered) -> IncompleteReason | None:
    return None if gathered.ended or gathered.failed else IncompleteReason.NO_TERMINATOR


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


def _response(attempt: Attempt, incomplete: IncompleteReason | None) -> Response:
    return Response(
        attempt.source,
        attempt.request_id,
        attempt.number,
        attempt.place,
        attempt.last_place[0],
        attempt.timestamp,
        attempt.started,
        attempt.completed,
        attempt.context,
        attempt.gathered,
        attempt.failed or attempt.gathered.failed,
        incomplete,
    )
