"""The sequences of an attempt's events that have arrived, in any order, as intervals.

They begin at 0, as documented, or at 1, as some producers count. Which of both is learned from the
log of the attempt alone: if its first event to arrive has sequence 1, and 0 has not arrived when
all others have, two at least, they begin at 1. An event 0 that comes even later is a late repeat.
"""

from bisect import bisect_left
from typing import Final

_MAX_GAPS: Final = 64
_TWO_FROM_ONE: Final = 3  # One above the sequences 1 and 2: of two events that swap, 1 comes first.


class SeenSequences:
    """The sequences seen.

    More than 64 gaps at once is not disorder but loss: then what is ahead is no longer kept, and
    the attempt can only end by its timeout.

    Args:
        below: all sequences below it have arrived.
        may_begin_at_one: whether sequence 1 arrived first.

    Attributes:
        next: all sequences below it have arrived, and it has not.
        end: one above the last sequence of the attempt, once that is known.
        lost: whether there were too many gaps.

    """

    __slots__ = ("_ahead", "_may_begin_at_one", "end", "lost", "next")

    def __init__(self, below: int = 0, *, may_begin_at_one: bool = False) -> None:
        self.next = below
        self._may_begin_at_one = may_begin_at_one
        self.end: int | None = None
        self.lost = False
        self._ahead: list[tuple[int, int]] | None = (
            None  # Arrived early: sorted, disjoint, [start, stop).
        )

    def add(self, sequence: int) -> bool:
        """Add a sequence; return False if it had arrived before."""
        if sequence == self.next:
            self.next += 1
            if self._ahead:
                self._close_gap()
            return True
        if sequence < self.next:
            return False
        return self._add_ahead(sequence)

    def mark_end(self, sequence: int | None) -> None:
        """Note that the event of this sequence (None: the highest one seen) is the last."""
        end = (
            (self._ahead[-1][1] if self._ahead else self.next) if sequence is None else sequence + 1
        )
        if self.end is None or end < self.end:
            self.end = end

    def has(self, sequence: int) -> bool:
        """Return whether a sequence has arrived."""
        if sequence < self.next:
            return True
        return any(start <= sequence < stop for start, stop in self._ahead or ())

    @property
    def top(self) -> int | None:
        """One above the highest sequence seen, if there is a gap below it and no end known."""
        return self._ahead[-1][1] if self._ahead and self.end is None and not self.lost else None

    def reach(self, top: int) -> None:
        """Add all sequences from the highest one seen up to below this one."""
        if self._ahead:
            self._ahead[-1] = self._ahead[-1][0], top

    @property
    def complete(self) -> bool:
        """Whether the end is known and nothing before it is missing."""
        if self.end is None or self.lost:
            return False
        return self.next >= self.end or self._top_from_one >= self.end

    @property
    def in_order(self) -> bool:
        """Whether all that has arrived is below `next`, and the end is not known."""
        return not self._ahead and self.end is None and not self.lost

    @property
    def has_gap(self) -> bool:
        """Whether an event is known to be missing."""
        top = self._top_from_one or self.next
        ahead = bool(self._ahead) and not self._top_from_one
        return ahead or self.lost or (self.end is not None and top < self.end)

    @property
    def begins_at_one(self) -> bool:
        """Whether nothing is missing but sequence 0, and 1 arrived first."""
        return self._top_from_one > 0

    @property
    def _top_from_one(self) -> int:
        """One above the highest sequence seen, if they begin at 1 without a gap; else 0."""
        if self.next or not self._may_begin_at_one or not self._ahead or len(self._ahead) > 1:
            return 0
        start, top = self._ahead[0]
        return top if start == 1 and top >= _TWO_FROM_ONE else 0

    def _close_gap(self) -> None:
        ahead = self._ahead
        while ahead and ahead[0][0] <= self.next:
            self.next = max(self.next, ahead.pop(0)[1])

    def _add_ahead(self, sequence: int) -> bool:
        if self._ahead is None:
            self._ahead = []
        ahead = self._ahead
        at = bisect_left(ahead, (sequence + 1,))
        before = ahead[at - 1] if at else None
        if before is not None and sequence < before[1]:
            return False
        joins_before = before is not None and before[1] == sequence
        joins_after = at < len(ahead) and ahead[at][0] == sequence + 1
        start = before[0] if before is not None and joins_before else sequence
        stop = ahead[at][1] if joins_after else sequence + 1
        ahead[at - joins_before : at + joins_after] = [(start, stop)]
        if len(ahead) > _MAX_GAPS:
            self.lost = True
            ahead.pop()
        return True
