"""Rules of stream time that were tried before, each led astray by what the next one withstands."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final


class _Blocks(ABC):
    """Blocks of 32 messages, whose timestamps a rule turns into time."""

    def __init__(self) -> None:
        self.now: int | None = None
        self._stamps: list[int] = []
        self._until: list[int | None] = []

    def observe(self, offset: int, timestamp: int) -> bool:
        """Add the timestamp of a message; return whether a block ended before it."""
        ended = bool(offset) and not offset % 32
        if ended:
            self.end_block(sorted(self._stamps))
            self._until.append(self.now)
            self._stamps.clear()
        self._stamps.append(timestamp)
        return ended

    def mark(self) -> Callable[[], int | None]:
        """Return what gives the stream time of the message observed last, None as yet."""
        following = len(self._until) + 1
        return lambda: self._until[following] if following < len(self._until) else None

    @abstractmethod
    def end_block(self, stamps: list[int]) -> None:
        """Let the sorted timestamps of a block that has ended have their say."""


class Maximum(_Blocks):
    """The latest timestamp."""

    def end_block(self, stamps: list[int]) -> None:
        self.now = max(self.now or 0, stamps[-1])


class TwoBlocks(_Blocks):
    """The median of a block; a jump of ten minutes counts once the next block agrees."""

    def __init__(self) -> None:
        super().__init__()
        self._pending: int | None = None

    def end_block(self, stamps: list[int]) -> None:
        median, pending, now = stamps[(len(stamps) - 1) // 2], self._pending, self.now
        self._pending = None
        if pending is not None and abs(median - pending) <= 600_000:
            self.now = max(now or 0, pending, median)
        elif now is None or median - now > 600_000:
            self._pending = median
        else:
            self.now = max(now, median)


class Walk(_Blocks):
    """Steps of half a timeout up to the median; larger ones count once nine blocks agree."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead: list[int] = []
        self._behind: list[int] = []

    def end_block(self, stamps: list[int]) -> None:
        median = stamps[(len(stamps) - 1) // 2]
        if self.now is None:
            self.now = median
            return
        if median < self.now - 60_000:
            self._behind.append(median)
            if len(self._behind) == 64:
                self.now = max(self._behind)
                self._until = [None if u is None else min(u, self.now) for u in self._until]
                self._behind.clear()
            self._ahead.clear()
            return
        self._behind.clear()
        at = self.now
        for stamp in stamps[: (len(stamps) + 1) // 2]:
            if stamp > at:
                if stamp - at > 60_000:
                    break
                at = stamp
        self.now = at
        if median - at <= 60_000:
            self._ahead.clear()
            return
        self._ahead.append(median)
        if len(self._ahead) == 9:
            self.now = min(self._ahead)
            self._ahead.clear()


class LowestOfNine(_Blocks):
    """The lowest of the last nine medians."""

    def __init__(self) -> None:
        super().__init__()
        self._medians: list[int] = []

    def end_block(self, stamps: list[int]) -> None:
        self._medians = [*self._medians, stamps[(len(stamps) - 1) // 2]][-9:]
        self.now = max(self.now or 0, min(self._medians))


REJECTED: Final = (Maximum, TwoBlocks, Walk, LowestOfNine)
