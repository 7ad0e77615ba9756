"""From response events to finished responses: the requests of one partition.

A request is open from its first event to its end, and stays known for a while after its last event
of any kind, so that late repeats neither reopen it nor publish it twice. A response that is
complete with its first event is never open. Nothing here reads a clock: time is stream time, and so
is a function of the log.
"""

import sys
from collections import deque
from collections.abc import Iterable
from typing import Final
from zlib import crc32

from consumer.core.bodies.body_reader import BodyReader, created_of
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.shapes import NOT_A_RESPONSE, Shape
from consumer.core.message import EventPlace
from consumer.core.reassembly.attempt import (
    Arrival,
    Attempt,
    RequestKey,
    has_digest,
    with_trace,
)
from consumer.core.reassembly.content_run import compact, expand
from consumer.core.reassembly.folder import EventFolder, damage_of
from consumer.core.reassembly.index import AttemptIndex, time_of
from consumer.core.reassembly.limits import Limits
from consumer.core.reassembly.repeats import RepeatMemory
from consumer.core.reassembly.response import Response
from consumer.core.response_event import Event, EventKind
from schemas import BadPayloadReason, IncompleteReason, SkipReason

# Not looked up for each event: see CONTRIBUTING.md.
_CHUNK, _END, _WHOLE = EventKind.CHUNK, EventKind.END, EventKind.WHOLE
_UNRELATED: Final = Shape.UNRELATED
_CHUNK_SHAPE: Final = Shape.CHUNK


class Reassembler:
    """The requests of one partition.

    Args:
        body_reader: folds documents.
        limits: bounds of the state.
        listed_open: places of open requests in the checkpoint from which the partition resumes.
            Until `go_live`, the list decides what was open: any other request is only remembered,
            and no outcome is reported.

    Attributes:
        index: the known attempts.
        repeats: memory for repeats of whole responses.
        live: whether outcomes are reported.

    """

    def __init__(
        self,
        body_reader: BodyReader,
        limits: Limits,
        listed_open: Iterable[EventPlace] | None = None,
    ) -> None:
        self.index = AttemptIndex(limits.max_reread)
        self._latest = self.index.latest
        self.repeats = RepeatMemory()
        self._finished: list[Response] = []
        self.live = listed_open is None
        self._folder = EventFolder(body_reader, limits)
        self._limits = limits
        self._not_found_yet: set[EventPlace] = set(listed_open or ())
        self._listed_offsets = deque(sorted({offset for offset, _ in self._not_found_yet}))
        self._resumed_open: set[EventPlace] = set()  # Requests that the list says were open.

    @property
    def finished_count(self) -> int:
        """Number of responses that `pop_finished` would return."""
        return len(self._finished)

    def pop_finished(self) -> list[Response]:
        """Return the responses that were finished or given up since the last call, in order."""
        finished, self._finished = self._finished, []
        return finished

    def next_listed(self, offset: int) -> int:
        """Return the next offset, from this one on, at which the list says that a request began."""
        while self._listed_offsets and self._listed_offsets[0] < offset:
            self._listed_offsets.popleft()
        return self._listed_offsets[0] if self._listed_offsets else sys.maxsize

    def add(self, event: Event, arrival: Arrival) -> SkipReason | BadPayloadReason | None:
        """Add one event; return why it was skipped or refused, or None if it was accepted."""
        kind = event.kind
        request_id = event.request_id or ""
        key = (event.source, request_id) if event.source else request_id
        if kind is _WHOLE:
            return self._add_whole(key, event, arrival)
        attempt = self._attempt_of(key, event, arrival.place)
        if attempt is not None:
            return self._add_to(attempt, event, arrival)
        if kind is _END:
            return SkipReason.ORPHAN_END
        return self._open(key, event, arrival)

    def advance(self, now: int, offset: int) -> None:
        """Close what has been idle for too long, and forget what need not be known any more.

        Args:
            now: stream time in milliseconds, as far as it is decided.
            offset: where the next block begins.

        """
        index, limits = self.index, self._limits
        horizon = offset - limits.max_reread
        idle_since = now - limits.idle_timeout_ms
        forgotten_since = idle_since - limits.duplicate_window_ms
        while attempt := index.idle_since(idle_since):
            self._give_up(attempt, IncompleteReason.IDLE_TIMEOUT)
        while (attempt := index.oldest()) and attempt.first_block.offset < horizon:
            if not self.live and attempt.must_report:
                break
            if attempt.open:
                self._give_up(attempt, IncompleteReason.TOO_LONG)
            index.unpin(attempt)
        while attempt := index.longest_finished():
            block = attempt.last_event_block
            if block.offset >= horizon and time_of(block) > forgotten_since:
                break
            if not self.live and attempt.request_place in self._resumed_open:
                break
            index.forget(attempt)

    def close_all(self, reason: IncompleteReason) -> None:
        """Close all open requests."""
        while attempt := self.index.longest_idle():
            self._give_up(attempt, reason)

    def go_live(self, now: int, offset: int) -> list[EventPlace]:
        """Leave re-reading: from here on, outcomes are reported.

        Args:
            now: stream time in milliseconds, as far as it is decided.
            offset: where the current block begins.

        Returns:
            listed places at which no event was found.

        """
        self.live = True
        not_found, self._not_found_yet = sorted(self._not_found_yet), set()
        self._resumed_open.clear()
        # A request that is still open and not listed had been closed for another reason.
        while attempt := self.index.longest_idle():
            self._finish(attempt, None)
        self.index.start_timeouts()
        self._keep_to_bound()
        self.repeats.note_restart(now + self._limits.duplicate_window_ms)
        self.advance(now, offset)
        return not_found

    # Which attempt an event belongs to

    def _attempt_of(self, key: RequestKey, event: Event, place: EventPlace) -> Attempt | None:
        """Find the attempt that an event belongs to; None if it opens a new one."""
        latest = self._latest.get(key)
        if latest is None:
            return None
        attempt = self._known_attempt_of(event, latest)
        if not self._not_found_yet or place not in self._not_found_yet:
            return attempt
        # The checkpoint lists this event as the start of an open request, so the earlier attempt
        # was already closed when it was written.
        if attempt is not None and not attempt.open:
            self.index.forget(latest)
        elif attempt is not None and not attempt.must_report:
            self._finish(attempt, None)
        return None

    def _known_attempt_of(self, event: Event, latest: Attempt) -> Attempt | None:
        """Find the attempt of a known request that an event belongs to; None if it is a new one.

        - An event that states its attempt belongs to the attempt of that number.
        - An event of the first sequence that differs from the latest attempt's opens a new one.
        - A finished attempt keeps only events whose body may have one of its response ids.
        - An open attempt accepts every body id: one stream may have chunks with several ids.
        - After its end, a chunk without sequence that cannot be a repeat opens a new one.
        """
        if event.attempt is not None:
            return self.index.numbered(latest, event.attempt)
        begins = event.sequence is not None and event.sequence == latest.first_sequence
        if begins and latest.first_digest not in (None, crc32(event.raw)):
            return None
        if not latest.open and not latest.facts.may_have_id(self._folder.body_id(event)):
            return None
        if (
            event.sequence is None
            and latest.unsequenced_events
            and self._begins_again(event, latest)
        ):
            if latest.open:
                latest.has_final = True
                self._finish_at_end(latest, None)
            return None
        return latest

    def _begins_again(self, event: Event, latest: Attempt) -> bool:
        """Return whether an event begins a stream again under the ids of one that has ended.

        Clients use one X-Request-Id for several calls, and engines make their ids of it. A chunk is
        not a repeat of an attempt if it was created after the attempt's result, or if it holds a
        result that the attempt does not have.
        """
        document, facts = event.document, latest.facts
        if document is None or event.shape is not _CHUNK_SHAPE or event.failed:
            return False
        ended = not latest.open and (facts.ended or facts.failed)
        if not ended and not (latest.open and (latest.awaits_usage or facts.closed)):
            return False
        if 0 <= latest.result_created < created_of(document):
            return True
        digest = self._folder.result_digest(event) if ended else None
        return digest is not None and not has_digest(latest.results, digest)

    # What an event does

    def _add_to(
        self, attempt: Attempt, event: Event, arrival: Arrival
    ) -> SkipReason | BadPayloadReason | None:
        """Add an event of a known attempt."""
        self._note_event(attempt, arrival)
        if not attempt.open:
            return SkipReason.LATE_REPEAT
        if attempt.earlier_results and event.sequence is None and self._is_earlier(event, attempt):
            return SkipReason.LATE_REPEAT
        if event.continues and event.sequence is None and attempt.segments is None:
            return BadPayloadReason.BODY_NOT_A_RESPONSE
        expand(attempt)
        if event.sequence is not None and attempt.has_seen(event.sequence):
            return SkipReason.DUPLICATE
        self._folder.fold(attempt, event)
        attempt.note_place(arrival)
        if attempt.has_ended:
            self._finish_at_end(attempt, None)
        else:
            compact(attempt)
        return None

    def _is_earlier(self, event: Event, attempt: Attempt) -> bool:
        """Return whether an event repeats the result of the attempt before, of the same ids."""
        digest = self._folder.result_digest(event)
        return (
            digest is not None
            and has_digest(attempt.earlier_results, digest)
            and not has_digest(attempt.results, digest)
        )

    def _note_event(self, attempt: Attempt, arrival: Arrival) -> None:
        """Note an event of any kind: from here on, the request stays known for its full time.

        Repeats count too; otherwise two instances that start at different offsets would remember
        different requests.
        """
        self._latest[attempt.key].last_event_block = arrival.block

    def _open(
        self, key: RequestKey, event: Event, arrival: Arrival
    ) -> SkipReason | BadPayloadReason | None:
        """Open a request with its first event, unless that event is all of it."""
        if event.continues and not event.sequence:
            return BadPayloadReason.BODY_NOT_A_RESPONSE
        alone = event.kind is _CHUNK and event.sequence is None and not event.failed
        if alone and event.shape in NOT_A_RESPONSE:
            if event.other_api is not None or event.shape is _UNRELATED:
                return event.other_api or SkipReason.UNRELATED_BODY
            return BadPayloadReason.BODY_NOT_A_RESPONSE
        attempt = self._new_attempt(key, event, arrival)
        listed = arrival.place in self._not_found_yet
        self._not_found_yet.discard(arrival.place)
        attempt.must_report = self.live or listed
        self._folder.fold(attempt, event)
        ended = attempt.has_ended
        more = attempt.segments is not None and attempt.segments.lacks_line_end
        if ended and not event.sequence and not listed and not more:
            return self._report_at_once(attempt, event, arrival)
        attempt.context = with_trace(attempt.context, arrival.read_headers)
        expires = self.live or not listed
        if not expires:
            self._resumed_open.add(attempt.request_place)
        self.index.add(attempt, expires=expires)
        if self.live and self.index.free_bits < 0:
            self._keep_to_bound()
        if ended:
            self._finish_at_end(attempt, None)
        else:
            compact(attempt)
        return None

    def _new_attempt(self, key: RequestKey, event: Event, arrival: Arrival) -> Attempt:
        place, block = arrival.place, arrival.block
        latest = self._latest.get(key)
        number = event.attempt
        if number is None:
            number = 0 if latest is None else latest.attempt_number + 1
        return Attempt(
            key=key,
            attempt_number=number,
            earlier_place=None if latest is None else latest.request_place,
            earlier_results=b"" if latest is None else latest.results,
            offset=place[0],
            index=place[1],
            timestamp=arrival.timestamp,
            first_block=block,
            last_new_block=block,
            last_new_within=place[0] - block.offset,
            last_event_block=block,
        )

    def _report_at_once(
        self, attempt: Attempt, event: Event, arrival: Arrival
    ) -> SkipReason | BadPayloadReason | None:
        """Report an attempt whose first event is all of it; it is never open.

        While re-reading, it may be the end of a request that began before.
        """
        if self.live and self.repeats.remember(event, arrival.place):
            return SkipReason.REPEATED_RESPONSE
        incomplete = self._folder.flush(attempt)
        if incomplete is None and not attempt.facts.failed and not attempt.facts.documents:
            if event.other_api is not None:
                return event.other_api
            chunk = event.kind is _CHUNK
            return BadPayloadReason.BODY_NOT_A_RESPONSE if chunk else SkipReason.ORPHAN_END
        if attempt.must_report:
            self.repeats.count(arrival.block.now)
            attempt.context = with_trace(attempt.context, arrival.read_headers)
            self._finished.append(attempt.response(incomplete))
        return None

    def _add_whole(self, key: RequestKey, event: Event, arrival: Arrival) -> SkipReason | None:
        """Add a response of which nothing more will come."""
        place = arrival.place
        facts = event.facts or ResponseFacts()
        incomplete = event.incomplete or damage_of(facts) or _missing_end(facts)
        must_report = self.live or place in self._not_found_yet
        number = event.attempt
        if event.request_id is not None:
            if self.repeats.remember(event, place):
                return SkipReason.REPEATED_RESPONSE
            attempt = self._attempt_of(key, event, place)
            if attempt is not None:
                return self._end_with_whole(attempt, event, facts, incomplete, arrival)
            if number is None:
                number = self.index.next_number(key)
        self._not_found_yet.discard(place)
        if must_report:
            self.repeats.count(arrival.block.now)
            response = Response(
                source=event.source,
                request_id=event.request_id,
                attempt=number or 0,
                place=place,
                last_offset=place[0],
                timestamp=arrival.timestamp,
                started=event.time,
                completed=event.time,
                context=with_trace(event.context, arrival.read_headers),
                facts=facts,
                failed=event.failed or facts.failed,
                incomplete=incomplete,
            )
            self._finished.append(response)
        return None

    def _end_with_whole(
        self,
        attempt: Attempt,
        event: Event,
        facts: ResponseFacts,
        incomplete: IncompleteReason | None,
        arrival: Arrival,
    ) -> SkipReason | None:
        """End a known attempt with an event that holds all of its response."""
        self._note_event(attempt, arrival)
        if not attempt.open:
            return SkipReason.LATE_REPEAT
        expand(attempt)
        attempt.facts, attempt.segments, attempt.has_final = facts, None, True
        attempt.note_envelope(event)
        attempt.note_place(arrival)
        self._finish_at_end(attempt, incomplete)
        return None

    # Ends

    def _finish_at_end(self, attempt: Attempt, incomplete: IncompleteReason | None) -> None:
        """Finish an attempt whose end has come."""
        self._finish(attempt, self._folder.flush(attempt) or incomplete)

    def _give_up(self, attempt: Attempt, reason: IncompleteReason) -> None:
        """Finish an attempt whose end was not seen."""
        expand(attempt)
        gap = attempt.seen is not None and attempt.seen.has_gap
        has_end = attempt.awaits_usage or (attempt.seen is not None and attempt.seen.complete)
        if has_end and not gap:
            # Other reasons do not come at the same place again when the log is re-read.
            attempt.has_final = reason is IncompleteReason.IDLE_TIMEOUT
            self._finish_at_end(attempt, None)
            return
        if reason is IncompleteReason.IDLE_TIMEOUT and gap:
            reason = IncompleteReason.GAP
        if self._folder.flush(attempt) is IncompleteReason.SEGMENT_OVERFLOW:
            reason = IncompleteReason.SEGMENT_OVERFLOW
        self._finish(attempt, reason)

    def _finish(self, attempt: Attempt, incomplete: IncompleteReason | None) -> None:
        """Report an open attempt, if that is due, and keep what recognises its repeats."""
        expand(attempt)
        expires = self.live or not attempt.must_report
        if attempt.must_report:
            self._finished.append(attempt.response(incomplete))
        attempt.shrink()
        self.index.finish(attempt, expires=expires)

    def _keep_to_bound(self) -> None:
        """Close the longest idle while more are open than a checkpoint holds."""
        while self.index.free_bits < 0 and (attempt := self.index.longest_idle()):
            self._give_up(attempt, IncompleteReason.BOUND)


def _missing_end(facts: ResponseFacts) -> IncompleteReason | None:
    return None if facts.ended or facts.failed else IncompleteReason.NO_TERMINATOR
