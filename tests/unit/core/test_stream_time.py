"""The time of a partition: no bad clock moves it, and it can be picked up at any block."""

from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.core.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    CapturedMessage,
)
from consumer.core.stream_time import BlockState, StreamTime
from tests.unit.core.made import BEGIN_MS

MINUTE = 60_000
Stamp = tuple[int, int]


def created(at: int) -> Stamp:
    return TIMESTAMP_CREATE_TIME, BEGIN_MS + at


def time_after(stamps: list[Stamp]) -> int | None:
    """Return stream time after messages of consecutive offsets, since the beginning."""
    time = StreamTime(BlockState(0))
    for offset, stamp in enumerate(stamps):
        time.observe(offset, stamp)
    time.observe((len(stamps) + 31) // 32 * 32, (TIMESTAMP_NOT_AVAILABLE, -1))
    return None if time.now is None else time.now - BEGIN_MS


def steady(blocks: int, every: int = 10) -> list[Stamp]:
    return [created(every * number) for number in range(32 * blocks)]


def test_time_is_known_once_two_blocks_agree() -> None:
    assert time_after(steady(1)) is None
    assert time_after(steady(2)) == 470


def test_time_is_the_median_of_the_last_block() -> None:
    assert time_after(steady(9)) == 10 * (8 * 32 + 15)


def test_one_producer_five_minutes_ahead_moves_nothing() -> None:
    """A running maximum let it close 22 % of healthy streams."""
    stamps = steady(20)
    for number in range(0, len(stamps), 4):
        stamps[number] = created(10 * number + 5 * MINUTE)
    found = time_after(stamps)
    assert found is not None
    assert found <= 10 * len(stamps)


def test_one_producer_years_ahead_moves_nothing() -> None:
    stamps = steady(20)
    for number in range(3, len(stamps), 3):
        stamps[number] = (TIMESTAMP_CREATE_TIME, 4_102_444_800_000)
    found = time_after(stamps)
    assert found is not None
    assert found <= 10 * len(stamps)


def test_a_burst_from_the_future_that_fills_one_block_counts_for_nothing() -> None:
    stamps = steady(10)
    stamps[160:192] = [created(400 * MINUTE)] * 32
    assert time_after(stamps) == time_after(steady(10))


def test_a_jump_counts_when_the_next_block_agrees() -> None:
    stamps = steady(4) + [created(400 * MINUTE + number) for number in range(64)]
    assert time_after(stamps[:-32]) == time_after(steady(4))
    assert time_after(stamps) == 400 * MINUTE + 47


def test_a_first_block_from_the_future_is_not_believed() -> None:
    """A far-future first message once left every request open for ever."""
    stamps = [created(10_000_000 * MINUTE)] * 32 + steady(4)
    assert time_after(stamps) == time_after(steady(4))


def test_time_never_goes_back() -> None:
    stamps = steady(5) + [created(-600 * MINUTE)] * 96
    assert time_after(stamps) == time_after(steady(5))


def test_missing_and_non_positive_timestamps_are_left_out() -> None:
    stamps = steady(6)
    for number in range(0, len(stamps), 2):
        stamps[number] = ((TIMESTAMP_NOT_AVAILABLE, -1), (TIMESTAMP_CREATE_TIME, 0))[number % 4 > 1]
    found = time_after(stamps)
    assert found is not None
    assert found > 10 * 160


def test_blocks_without_timestamps_leave_time_where_it_is() -> None:
    stamps = steady(3) + [(TIMESTAMP_NOT_AVAILABLE, -1)] * 64
    assert time_after(stamps) == time_after(steady(3))


def test_log_append_time_is_believed_at_once() -> None:
    stamps = [(TIMESTAMP_LOG_APPEND_TIME, BEGIN_MS + 10 * n) for n in range(32)]
    assert time_after(stamps) == 150


def test_a_block_ends_when_a_later_one_begins_however_large_the_gap() -> None:
    time = StreamTime(BlockState(5))
    assert not time.observe(5, created(0))
    assert not time.observe(31, created(1))
    assert time.observe(1_000_000, created(2))
    assert time.start.offset == 1_000_000 // 32 * 32
    assert not time.observe(1_000_001, created(3))


stamps_of = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 1, 1, 2]),
        st.integers(-1, 2**62) | st.integers(BEGIN_MS, BEGIN_MS + 9),
    ),
    min_size=1,
    max_size=200,
)


@settings(deadline=None, max_examples=200)
@given(stamps=stamps_of.map(lambda stamps: stamps[:32]))
def test_the_median_is_that_of_all_stamps_that_are_known(stamps: list[Stamp]) -> None:
    known = sorted(stamp for kind, stamp in stamps if kind != TIMESTAMP_NOT_AVAILABLE and stamp > 0)
    time = StreamTime(BlockState(0))
    messages = [CapturedMessage(timestamp_type=kind, timestamp_ms=at) for kind, at in stamps]
    time.observe_all(messages)
    time.enter(32)
    if not known:
        assert time.start == BlockState(32)
        return
    median = known[(len(known) - 1) // 2]
    appended = any(kind == TIMESTAMP_LOG_APPEND_TIME and stamp > 0 for kind, stamp in stamps)
    assert time.start == (BlockState(32, median) if appended else BlockState(32, None, median))


@settings(deadline=None, max_examples=100)
@given(stamps=stamps_of, gaps=st.lists(st.integers(1, 50), max_size=20), data=st.data())
def test_reading_again_from_any_block_gives_the_same_time(
    stamps: list[Stamp], gaps: list[int], data: st.DataObject
) -> None:
    offsets, offset = [], data.draw(st.integers(0, 100))
    begin = offset
    for number in range(len(stamps)):
        offsets.append(offset)
        offset += gaps[number % len(gaps)] if gaps else 1
    time = StreamTime(BlockState(begin))
    states = []
    for offset, stamp in zip(offsets, stamps, strict=True):
        time.observe(offset, stamp)
        states.append(time.start)
    at = data.draw(st.integers(0, len(stamps) - 1))
    again = StreamTime(states[at])
    for offset, stamp in zip(offsets, stamps, strict=True):
        if offset >= states[at].offset:
            again.observe(offset, stamp)
    assert again.start == time.start
