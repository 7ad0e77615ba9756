"""The time of a partition: a function of its log alone, robust against bad clocks.

The running maximum of the median timestamp over aligned blocks of 32 offsets. A median that jumps
forward by more than ten minutes counts only when the next block agrees, and so does the very first.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from consumer.core.message import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

BLOCK_BITS: Final = 5
MAX_JUMP_MS: Final = 10 * 60 * 1000


class BlockState(Struct, eq=False, gc=False):
    """Stream time where a block begins: all that re-reading needs to start there.

    Attributes:
        offset: where reading starts: a multiple of 32, or where the partition was first read.
        now: stream time in milliseconds since 1970, or None before the first two blocks agree.
        pending: a jump that waits for the next block to agree.
        until: stream time where the block ends, None before that: the time of its events, since in
            a quiet partition a block may last longer than any timeout.

    """

    offset: int
    now: int | None = None
    pending: int | None = None
    until: int | None = None

    def __eq__(self, other: object) -> bool:
        """Return whether reading starts there in the same state."""
        return isinstance(other, BlockState) and (self.offset, self.now, self.pending) == (
            other.offset,
            other.now,
            other.pending,
        )

    def __hash__(self) -> int:
        """Return the hash of the offset."""
        return hash(self.offset)

    @property
    def block(self) -> int:
        """Return the number of the block."""
        return self.offset >> BLOCK_BITS


class StreamTime:
    """The stream time of one partition, which follows its messages.

    Args:
        start: state at the border of the block in which the next offset lies.

    """

    __slots__ = ("_block", "_stamps", "start")

    def __init__(self, start: BlockState) -> None:
        self.start = start
        self._block = start.block
        self._stamps: list[tuple[int, int]] = []

    @property
    def now(self) -> int | None:
        """Return stream time in milliseconds, or None while it is not known."""
        return self.start.now

    @property
    def end(self) -> int:
        """Return the offset at which the current block ends."""
        return (self._block + 1) << BLOCK_BITS

    def enter(self, offset: int) -> bool:
        """Enter the block of the next message; return whether another block ended before it."""
        block = offset >> BLOCK_BITS
        if block == self._block:
            return False
        self._block = block
        ended, self.start = self.start, self._next_state(block << BLOCK_BITS)
        ended.until = self.start.now
        self._stamps.clear()
        return True

    def observe(self, offset: int, timestamp: tuple[int, int]) -> bool:
        """Add the timestamp of a message; return whether a block ended before it."""
        ended = offset >> BLOCK_BITS != self._block and self.enter(offset)
        self._stamps.append(timestamp)
        return ended

    def observe_all(self, messages: Iterable[Message]) -> None:
        """Add the timestamps of messages of the current block."""
        self._stamps += [message.timestamp() for message in messages]

    def _next_state(self, offset: int) -> BlockState:
        now, pending = self.start.now, self.start.pending
        if not self._stamps:
            return BlockState(offset, now, pending)
        stamps = sorted(self._stamps)  # Nearly always of one kind, and then by time.
        kind, earliest = stamps[0]
        if kind != stamps[-1][0] or kind == TIMESTAMP_NOT_AVAILABLE or earliest <= 0:
            known = [each for each in stamps if each[0] and each[1] > 0]
            self._stamps = [(known[-1][0], stamp) for _, stamp in known]
            return self._next_state(offset)
        kind, median = stamps[(len(stamps) - 1) // 2]
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            return BlockState(offset, median if now is None else max(now, median))
        if pending is not None and abs(median - pending) <= MAX_JUMP_MS:
            candidate = max(pending, median)
            return BlockState(offset, candidate if now is None else max(now, candidate))
        if now is None or median - now > MAX_JUMP_MS:
            return BlockState(offset, now, median)
        return BlockState(offset, max(now, median))
