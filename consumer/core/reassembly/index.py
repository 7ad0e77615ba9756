"""The attempts of one partition that are known, in the orders in which they expire.

An open attempt expires when no new event arrives for too long, a finished request when no event at
all does, and either when it began too far behind. An event of an open request costs nothing here:
entries of the heaps keep the offset at which they were added, and are put right only when the first
one is asked for.
"""

from collections import deque
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from consumer.core.checkpoint import open_budget, place_bits
from consumer.core.message import EventPlace
from consumer.core.reassembly.attempt import Attempt, RequestKey
from consumer.core.stream_time import BlockState

_SLACK: Final = 64  # Outdated entries that are not worth removing.
_NEVER: Final = 1 << 62

_Entry = tuple[int, Attempt]  # Of a heap: an offset, which may be outdated, and the attempt.


def time_of(block: BlockState) -> int:
    """Return stream time of the events of a block; it is in the future until it is decided."""
    return _NEVER if block.until is None else block.until


class AttemptIndex:
    """The known attempts.

    Args:
        max_reread: see `Limits`.

    Attributes:
        latest: the latest attempt of each known request.
        open_count: how many open attempts there are that can expire.
        free_bits: what a checkpoint has left for open attempts; negative if they are too many.

    """

    def __init__(self, max_reread: int) -> None:
        self.latest: dict[RequestKey, Attempt] = {}
        self.open_count = 0
        self._numbered: dict[tuple[RequestKey, int], Attempt] = {}  # Those before the latest.
        self._by_begin: deque[Attempt] = deque()  # Some of them no longer pin the start.
        self._unpinned = 0
        self._idle: list[_Entry] = []  # A heap of open attempts by their last new event.
        self._idle_since = 0  # No open attempt has been idle since before this stream time.
        self._finished: list[_Entry] = []  # A heap of finished requests by their last event.
        self.free_bits, self._bits = open_budget(max_reread)
        self._first_bits = self._bits + place_bits(0)

    @property
    def start(self) -> BlockState | None:
        """Return where reading must start to find this state again; None if nothing is known.

        It is the first event of the oldest attempt that re-reading needs; for a request that began
        more than max_reread messages earlier, it is the last event.
        """
        oldest, finished = self.oldest(), self.longest_finished()
        if oldest is None:
            return None if finished is None else finished.last_event_block
        if finished is not None and finished.last_event_block.offset < oldest.first_block.offset:
            return finished.last_event_block
        return oldest.first_block

    @property
    def oldest_open_began_ms(self) -> int | None:
        """Return stream time at which the oldest open request began; None if none is open.

        Goes through all open ones.
        """
        return min((each.first_block.now for _, each in self._idle if each.open), default=None)

    def open_places(self) -> tuple[EventPlace, ...]:
        """Return where open requests began, sorted."""
        return tuple(sorted(attempt.place for _, attempt in self._idle if attempt.open))

    def next_number(self, key: RequestKey) -> int:
        """Return the number of the next attempt at a request."""
        latest = self.latest.get(key)
        return 0 if latest is None else latest.attempt_number + 1

    def numbered(self, latest: Attempt, number: int) -> Attempt | None:
        """Return the attempt of this number at the request of its latest attempt, if known."""
        if number == latest.attempt_number:
            return latest
        earlier = self._numbered.get((latest.key, number))
        if earlier is not None and earlier.request_place == latest.request_place:
            return earlier
        return None

    # Changes of state

    def add(self, attempt: Attempt, *, expires: bool) -> None:
        """Add an open attempt, which is the latest of its request.

        Args:
            attempt: the attempt.
            expires: whether it can expire already; if not, `start_timeouts` follows.

        """
        latest = self.latest.get(attempt.key)
        if latest is not None:
            self._numbered[latest.key, latest.attempt_number] = latest
        self.latest[attempt.key] = attempt
        if 2 * self._unpinned > len(self._by_begin) + _SLACK:
            self._by_begin = deque(each for each in self._by_begin if each.pins_start)
            self._unpinned = 0
        self._by_begin.append(attempt)
        self.free_bits -= self._bits_of(attempt)
        if expires:
            self._add_open(attempt)

    def start_timeouts(self) -> None:
        """Let the open attempts expire that could not do so before."""
        self._idle_since = 0
        for attempt in self._by_begin:
            if attempt.open:
                self._add_open(attempt)

    def finish(self, attempt: Attempt, *, expires: bool) -> None:
        """Turn an open attempt into a finished one; `expires` as in `add`."""
        if expires:
            self.open_count -= 1
        self.free_bits += self._bits_of(attempt)
        if attempt.last_new_block.offset > attempt.last_event_block.offset:
            attempt.last_event_block = attempt.last_new_block
        if self.latest.get(attempt.key) is attempt:
            heappush(self._finished, (attempt.last_event_block.offset, attempt))

    def forget(self, latest: Attempt) -> None:
        """Forget a request; its earlier attempts follow when they are the oldest."""
        del self.latest[latest.key]
        self.unpin(latest)

    def unpin(self, attempt: Attempt) -> None:
        """Let re-reading no longer reach back to an attempt, and forget it by its number."""
        if attempt.pins_start:
            attempt.pins_start = False
            self._unpinned += 1
        if self._numbered.get((attempt.key, attempt.attempt_number)) is attempt:
            del self._numbered[attempt.key, attempt.attempt_number]

    # The first of each order

    def oldest(self) -> Attempt | None:
        """Return the attempt that pins the start of re-reading."""
        by_begin = self._by_begin
        while by_begin and (not by_begin[0].pins_start or self._is_forgotten(by_begin[0])):
            self.unpin(by_begin[0])
            by_begin.popleft()
            self._unpinned -= 1
        return by_begin[0] if by_begin else None

    def longest_idle(self) -> Attempt | None:
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

    def idle_since(self, time: int) -> Attempt | None:
        """Return an open attempt without a new event since this stream time or before."""
        # The bound was true when it was noted, and mostly still shows that there is none.
        if self._idle_since > time or (attempt := self.longest_idle()) is None:
            return None
        block = attempt.last_new_block
        self._idle_since = block.now if block.until is None else block.until
        return attempt if time_of(block) <= time else None

    def longest_finished(self) -> Attempt | None:
        """Return the latest attempt of the finished request whose last event is the oldest."""
        heap = self._finished
        while heap:
            offset, attempt = heap[0]
            if self.latest.get(attempt.key) is not attempt:
                heappop(heap)
            elif attempt.last_event_block.offset != offset:
                heapreplace(heap, (attempt.last_event_block.offset, attempt))
            else:
                return attempt
        return None

    def _add_open(self, attempt: Attempt) -> None:
        self.open_count += 1
        if len(self._idle) > 2 * self.open_count + _SLACK:
            self._idle = [entry for entry in self._idle if entry[1].open]
            heapify(self._idle)
        heappush(self._idle, (attempt.offset, attempt))

    def _is_forgotten(self, attempt: Attempt) -> bool:
        """Return whether the request of an attempt has been forgotten, and perhaps begun again."""
        latest = self.latest.get(attempt.key)
        return not attempt.open and (
            latest is None or latest.request_place != attempt.request_place
        )

    def _bits_of(self, attempt: Attempt) -> int:
        index = attempt.index
        return self._bits + place_bits(index) if index else self._first_bits
