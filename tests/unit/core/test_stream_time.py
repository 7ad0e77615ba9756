"""The time of a partition: no bad clock moves it, and it can be picked up at any block."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.core.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    CapturedMessage,
)
from consumer.core.stream_time import BlockState, StreamTime
from tests.simulation.clock_rules import REJECTED
from tests.simulation.clocks import OwnRule, Rule, check, log_with_burst, log_with_share
from tests.unit.core.made import BEGIN_MS

MINUTE = 60_000
Stamp = tuple[int, int]
EVERY = 10
BLOCK = 32 * EVERY  # Milliseconds of a block in a steady log.


def created(at: int) -> Stamp:
    return TIMESTAMP_CREATE_TIME, BEGIN_MS + at


def states_of(stamps: Sequence[Stamp]) -> list[BlockState]:
    """Return the state of each block, for messages of consecutive offsets that end a block."""
    time = StreamTime(BlockState(0))
    states = [time.start]
    for offset, stamp in enumerate([*stamps, (TIMESTAMP_NOT_AVAILABLE, -1)]):
        if time.observe(offset, stamp):
            states.append(time.start)
    return states


def time_after(stamps: Sequence[Stamp]) -> int:
    return states_of(stamps)[-1].now


def steady(blocks: int, *, begin: int = 0) -> list[Stamp]:
    return [created(begin + EVERY * number) for number in range(32 * blocks)]


def test_time_begins_when_19_blocks_have_ended() -> None:
    states = states_of(steady(21))
    assert [state.clock is None for state in states] == [True] * 19 + [False] * 3
    assert [state.now for state in states] == [0] * 20 + [BLOCK, 2 * BLOCK]


def test_time_is_that_of_the_block_nine_blocks_before_the_last() -> None:
    state = states_of(steady(40))[-1]
    median_of_block_30 = EVERY * (30 * 32 + 15)
    assert state.clock == BEGIN_MS + median_of_block_30
    assert state.now == (30 - 9) * BLOCK


def test_the_time_of_an_event_is_that_of_the_next_block_once_ten_blocks_have_followed() -> None:
    states = states_of(steady(30))
    assert [state.until for state in states[:21]] == [0] * 9 + [n * BLOCK for n in range(1, 12)] + [
        None
    ]


wrong_clocks = st.lists(
    st.integers(-(2**62), 2**62) | st.integers(BEGIN_MS - 10**9, BEGIN_MS + 10**9),
    min_size=1,
    max_size=256,
)


@settings(deadline=None, max_examples=200)
@given(wrong=wrong_clocks, times=st.integers(1, 256), begin=st.integers(0, 600))
def test_no_256_messages_in_a_row_lead_time_anywhere(
    wrong: list[int], times: int, begin: int
) -> None:
    right = steady(50)
    stamps = list(right)
    run = (wrong * times)[:256]
    stamps[begin : begin + len(run)] = [(TIMESTAMP_CREATE_TIME, at) for at in run]
    found, expected = states_of(stamps), states_of(right)
    for state, undisturbed in zip(found, expected, strict=True):
        assert abs(state.now - undisturbed.now) <= 9 * BLOCK
        assert state.left is None
    assert [state.clock for state in found[-3:]] == [state.clock for state in expected[-3:]]


def test_one_producer_five_minutes_ahead_moves_nothing() -> None:
    """A running maximum let it close 22 % of healthy streams."""
    stamps = steady(40)
    for number in range(0, len(stamps), 4):
        stamps[number] = created(EVERY * number + 5 * MINUTE)
    assert time_after(stamps) <= EVERY * len(stamps)


def test_the_hour_of_an_outage_counts_at_once() -> None:
    before, after = steady(30), steady(30, begin=30 * BLOCK + 60 * MINUTE)
    moved = [state.now for state in states_of(before + after)]
    steps = [later - earlier for earlier, later in pairwise(moved)]
    assert sorted(steps)[-2:] == [BLOCK, BLOCK + 60 * MINUTE]


def test_an_event_just_after_an_outage_is_not_dated_before_it() -> None:
    """It may stand in a block of which most messages came before the outage."""
    before, after = steady(30)[:-4], steady(31, begin=30 * BLOCK + 60 * MINUTE)[:-28]
    states = states_of(before + after)
    shared, now = states[29], states[-1].now
    assert shared.until is not None
    assert now - shared.until < 30 * BLOCK


def test_time_stands_still_while_older_messages_come() -> None:
    stamps = steady(40) + steady(60, begin=-600 * MINUTE)
    assert time_after(stamps) == max(state.now for state in states_of(steady(40) + steady(20)))


def test_a_wrong_time_that_was_believed_heals_after_64_blocks() -> None:
    ahead = steady(32, begin=30 * BLOCK + 50 * MINUTE)
    states = states_of(steady(30) + ahead + steady(150, begin=62 * BLOCK))
    believed = [number for number, state in enumerate(states) if state.left is not None]
    assert believed[0] == 30 + 32 + 64 + 9
    clock = states[-1].clock
    assert clock is not None
    assert 0 <= BEGIN_MS + 212 * BLOCK - clock < 11 * BLOCK


def test_a_long_run_of_clocks_behind_makes_no_stream_look_idle_when_it_ends() -> None:
    """The time before it is remembered: coming back to it is not a jump forward."""
    behind = steady(100, begin=-600 * MINUTE)
    stamps = steady(40) + behind + steady(40, begin=140 * BLOCK)
    states = states_of(stamps)
    assert any(state.left is not None for state in states)
    assert states[-1].left is None
    assert states[-1].now <= 180 * BLOCK


def test_missing_and_impossible_timestamps_are_left_out() -> None:
    stamps = steady(30)
    odd = ((TIMESTAMP_NOT_AVAILABLE, -1), (TIMESTAMP_CREATE_TIME, 0), (TIMESTAMP_CREATE_TIME, 5))
    for number in range(0, len(stamps), 2):
        stamps[number] = odd[number // 2 % 3]
    assert abs(time_after(stamps) - time_after(steady(30))) <= EVERY


def test_blocks_without_timestamps_agree_with_the_block_before() -> None:
    stamps = steady(30) + [(TIMESTAMP_NOT_AVAILABLE, -1)] * 64
    assert time_after(stamps) == time_after(steady(32))


def test_events_before_the_first_timestamp_count_from_the_beginning() -> None:
    states = states_of([(TIMESTAMP_NOT_AVAILABLE, -1)] * 64 + steady(30))
    assert [state.until for state in states[:3]] == [0, 0, 0]


def test_log_append_time_counts_as_any_other() -> None:
    appended = [(TIMESTAMP_LOG_APPEND_TIME, at) for _, at in steady(30)]
    assert time_after(appended) == time_after(steady(30))


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
    max_size=32,
)


@settings(deadline=None, max_examples=200)
@given(stamps=stamps_of)
def test_the_median_is_that_of_all_stamps_that_can_be_true(stamps: list[Stamp]) -> None:
    known = sorted(
        stamp
        for kind, stamp in stamps
        if kind != TIMESTAMP_NOT_AVAILABLE and 1_420_070_400_000 <= stamp < 4_102_444_800_000
    )
    time = StreamTime(BlockState(0))
    messages = [CapturedMessage(timestamp_type=kind, timestamp_ms=at) for kind, at in stamps]
    time.observe_all(messages)
    time.enter(32)
    assert time.start.medians == ((known[(len(known) - 1) // 2],) if known else ())


@settings(deadline=None, max_examples=100)
@given(
    blocks=st.lists(stamps_of, min_size=1, max_size=120),
    gaps=st.lists(st.integers(1, 50), max_size=20),
    data=st.data(),
)
def test_reading_again_from_any_block_gives_the_same_time(
    blocks: list[list[Stamp]], gaps: list[int], data: st.DataObject
) -> None:
    stamps = [stamp for block in blocks for stamp in block]
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
    found = {}
    for offset, stamp in zip(offsets, stamps, strict=True):
        if offset >= states[at].offset:
            again.observe(offset, stamp)
            found[again.start.offset] = again.start
    assert again.start == time.start
    for state in states:
        if state.offset >= states[at].offset:
            assert found[state.offset].until == state.until


# Wrong clocks in a log with streams that go on: see `make clocks`


@pytest.mark.parametrize("longest", [0, 20, 256])
def test_no_burst_of_up_to_256_messages_closes_a_stream_that_goes_on(longest: int) -> None:
    closed = [check(OwnRule(), log_with_burst(seed, longest)).closed for seed in range(100)]
    assert sum(closed) == 0


def test_a_tenth_of_the_messages_from_wrong_clocks_closes_no_stream_that_goes_on() -> None:
    assert sum(check(OwnRule(), log_with_share(seed, 0.1)).closed for seed in range(100)) == 0


@pytest.mark.parametrize("rule", REJECTED)
def test_a_rule_that_was_tried_before_closes_streams_that_go_on(rule: Callable[[], Rule]) -> None:
    assert any(check(rule(), log_with_burst(seed, 256)).closed for seed in range(100))
