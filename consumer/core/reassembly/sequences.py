"""The sequences of an attempt's events that have arrived, from 0, in any order, as intervals."""

from bisect import bisect_left
from typing import Final

_MAX_GAPS: Final = 64


class SeenSequences:
    """The sequences seen.

    More than 64 gaps at once is not disorder but loss: then what is ahead is no longer kept, and
    the attempt can only end by its timeout.

    Args:
        below: all sequences below it have arrived.

    Attributes:
        next: all sequences below it have arrived, and it has not.
        end: one above the last sequence of the attempt, once that is known.
        lost: whether there were too many gaps.

    """

    __slots__ = ("_ahead", "end", "lost", "next")

    def __init__(self, below: int = 0) -> None:
        self.next = below
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
        return self.end is not None and self.next >= self.end

    @property
    def in_order(self) -> bool:
        """Whether all that has arrived is below `next`, and the end is not known."""
        return not self._ahead and self.end is None and not self.lost

    @property
    def has_gap(self) -> bool:
        """Whether an event is known to be missing."""
        return bool(self._ahead) or self.lost or (self.end is not None and self.next < self.end)

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
