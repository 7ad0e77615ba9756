"""The time of a partition: a function of its log alone, which no bad clock leads astray.

The clock at a block of 32 offsets is the median, over the 19 blocks around it, of the median
timestamp in each. Any 256 messages in a row can be wrong about at most nine of them. Stream time
counts the milliseconds by which that clock moves forward. See `consumer/README.md` for the rule
line by line, and for what goes wrong without each line.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from consumer.core.message import TIMESTAMP_NOT_AVAILABLE, Message
from consumer.core.times import FIRST_EVENT_MS, LAST_EVENT_MS

BLOCK_BITS: Final = 5
REACH: Final = 9  # Blocks before and after a block that have a say in its clock.
MAX_MEDIANS: Final = 2 * REACH
MAX_BEHIND: Final = 64  # Blocks in a row after which an earlier clock counts.
_TOLERANCE_MS: Final = 60_000  # By this much, clocks that agree may differ.


class BlockState(Struct, eq=False, gc=False):
    """Stream time where a block begins: all that re-reading needs to start there.

    Attributes:
        offset: where reading starts: a multiple of 32, or where the partition was first read.
        now: stream time, in milliseconds since the partition was first read.
        clock: milliseconds since 1970 at `now`, or None before the first 19 blocks have ended.
        behind: blocks in a row that lie well before `clock`.
        left: the clock, and the stream time at it, before blocks that lay well before it counted.
        medians: the median timestamps of the last 18 blocks, milliseconds since 1970.
        until: stream time in the block after it, which is not before any event of the block; None
            until the ten blocks after it have ended.

    """

    offset: int
    now: int = 0
    clock: int | None = None
    behind: int = 0
    left: tuple[int, int] | None = None
    medians: tuple[int, ...] = ()
    until: int | None = None

    def __eq__(self, other: object) -> bool:
        """Return whether reading starts there in the same state."""
        return isinstance(other, BlockState) and self._state == other._state

    def __hash__(self) -> int:
        """Return the hash of the offset."""
        return hash(self.offset)

    @property
    def _state(self) -> tuple[object, ...]:
        return self.offset, self.now, self.clock, self.behind, self.left, self.medians

    @property
    def block(self) -> int:
        """Return the number of the block."""
        return self.offset >> BLOCK_BITS


class StreamTime:
    """The stream time of one partition, which follows its messages.

    Args:
        start: state at the border of the block in which the next offset lies.

    """

    __slots__ = ("_block", "_stamps", "_undecided", "start")

    def __init__(self, start: BlockState) -> None:
        self.start = start
        self._block = start.block
        self._stamps: list[tuple[int, int]] = []
        self._undecided: deque[BlockState] = deque()  # Blocks that have ended, without `until`.

    @property
    def now(self) -> int:
        """Return stream time in milliseconds, as far as it is decided."""
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
        self._end_block(block << BLOCK_BITS)
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

    def _end_block(self, offset: int) -> None:
        """End the current block where the next one begins, and decide the one nine before it."""
        ended = self.start
        median = _median(self._stamps)
        if median is None:  # It says nothing else than the block before it.
            if not ended.medians:
                ended.until = ended.now
                self.start = BlockState(offset, ended.now)
                return
            median = ended.medians[-1]
        self._undecided.append(ended)
        medians = (*ended.medians, median)
        if len(medians) <= 2 * REACH:
            self.start = BlockState(offset, ended.now, medians=medians)
            return
        self.start = _next_state(ended, offset, sorted(medians)[REACH], medians[1:])
        while len(self._undecided) > REACH + 1:
            self._undecided.popleft().until = self.start.now


def _median(stamps: list[tuple[int, int]]) -> int | None:
    """Return the median of the timestamps that can be true, the lower one of two."""
    known = [
        stamp
        for kind, stamp in stamps
        if kind != TIMESTAMP_NOT_AVAILABLE and FIRST_EVENT_MS <= stamp <= LAST_EVENT_MS
    ]
    known.sort()
    return known[(len(known) - 1) // 2] if known else None


def _next_state(state: BlockState, offset: int, clock: int, medians: tuple[int, ...]) -> BlockState:
    """Return the state of the next block, at an offset, by the clock of the block decided on."""
    now, known, left = state.now, state.clock, state.left
    if known is None:
        return BlockState(offset, now, clock, 0, None, medians)
    if clock >= known:
        if left is None or clock < left[0] - _TOLERANCE_MS:
            return BlockState(offset, now + clock - known, clock, 0, left, medians)
        left_at, left_now = left
        return BlockState(offset, max(now, left_now + clock - left_at), clock, 0, None, medians)
    behind = state.behind + 1 if clock < known - _TOLERANCE_MS else 0
    if behind < MAX_BEHIND:
        return BlockState(offset, now, known, behind, left, medians)
    return BlockState(offset, now, clock, 0, (known, now), medians)
