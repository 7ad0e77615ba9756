"""A restart anywhere changes nothing: random logs, read once undisturbed and once with restarts.

At a restart the state of the partition is dropped and recovered from its checkpoint alone. The
outcomes before and after must equal those of the undisturbed pass, and so must the outcome of every
message, and the checkpoint at every later position.
"""

from collections import Counter
from collections.abc import Collection
from random import Random
from typing import Final

import msgspec
import pytest
from msgspec import Struct

from consumer.core.checkpoint import Checkpoint, decode, encode, topic_hash
from consumer.core.message import CapturedMessage
from consumer.core.outcomes import RequestResult
from consumer.core.partition import MessageResult, Partition, Pipeline
from consumer.core.reassembly import index
from consumer.core.reassembly.limits import Limits
from schemas import IncompleteReason, MessageOutcome, RequestOutcome, SkipReason
from tests.unit.core import made
from tests.unit.core.made import (
    TOPIC,
    chunk,
    last_chunk,
    native,
    pipeline,
    quicken_time,
    short,
    short_message,
)
from tests.unit.core.random_log import RandomLog

SEEDS: Final = 300
TOPIC_HASH: Final = topic_hash("a topic id")
LIMITS: Final = Limits(idle_timeout_ms=2_000, duplicate_window_ms=1_000, max_reread=100_000)
SEEN: Final = (
    "published",
    "failed_response",
    "unattributable",
    "incomplete(idle_timeout)",
    "incomplete(gap)",
    "no_stats(stream_without_usage_chunk)",
    "skipped(duplicate)",
    "skipped(late_repeat)",
    "skipped(orphan_end)",
    "restarts with open requests",
    "restarts with nothing open",
    "restarts before stream time is known",
)


class Pass(Struct):
    """What one pass over a log gave."""

    messages: dict[int, MessageResult] = {}
    outcomes: list[RequestResult] = []
    checkpoints: dict[int, Checkpoint] = {}
    restarts: Counter[str] = msgspec.field(default_factory=Counter)

    def take(self, partition: Partition, message: CapturedMessage) -> None:
        result = partition.feed(message)
        if partition.live:
            assert message.offset() not in self.messages
            self.messages[message.offset()] = result
            self.outcomes += partition.drain()
            self.checkpoints[partition.position] = partition.checkpoint(TOPIC_HASH)

    def finish(self, partition: Partition) -> None:
        partition.close_all()
        self.outcomes += partition.drain()

    def encoded(self, leaving_out: Collection[int] = ()) -> Counter[bytes]:
        return Counter(
            msgspec.json.encode(result)
            for result in self.outcomes
            if result.response.place[0] not in leaving_out
        )


def undisturbed(core: Pipeline, log: RandomLog, silent: Collection[int] = ()) -> Pass:
    done = Pass()
    partition = core.partition(TOPIC, 0, log.messages[0].offset())
    for number, message in enumerate(log.messages):
        done.take(partition, message)
        if number in silent:
            partition.close_silent()
    done.finish(partition)
    return done


def restarted(
    core: Pipeline, log: RandomLog, cuts: Collection[int], silent: Collection[int] = ()
) -> Pass:
    done = Pass()
    left = set(cuts)
    partition = core.partition(TOPIC, 0, log.messages[0].offset())
    number = 0
    while number < len(log.messages):
        done.take(partition, log.messages[number])
        if partition.live and number in silent:
            partition.close_silent()
            done.outcomes += partition.drain()
        if partition.live and number in left:
            left.discard(number)
            checkpoint = found_again(partition)
            note_restart(done, checkpoint)
            partition = core.resume(TOPIC, 0, checkpoint)
            number = first_at(log, checkpoint.start.offset)
        else:
            number += 1
    done.finish(partition)
    return done


def found_again(partition: Partition) -> Checkpoint:
    """Return the partition's checkpoint as it comes back from the broker."""
    checkpoint = partition.checkpoint(TOPIC_HASH)
    assert checkpoint.start.offset <= checkpoint.position
    found = decode(encode(checkpoint), partition.position, TOPIC_HASH)
    assert found == checkpoint
    return checkpoint


def first_at(log: RandomLog, offset: int) -> int:
    """Return the number of the first message that a fetch from an offset returns."""
    return sum(message.offset() < offset for message in log.messages)


def note_restart(done: Pass, checkpoint: Checkpoint) -> None:
    open_or_not = "open requests" if checkpoint.open else "nothing open"
    done.restarts[f"restarts with {open_or_not}"] += 1
    if checkpoint.start.clock is None:
        done.restarts["restarts before stream time is known"] += 1
    if checkpoint.start.left is not None:
        done.restarts["restarts after a clock that was ahead"] += 1


def cuts_of(random: Random, log: RandomLog) -> set[int]:
    return {random.choice(log.busy) for _ in range(random.choice((1, 2, 4)))}


def assert_equal(seed: int, expected: Pass, found: Pass) -> None:
    """Compare two passes, but for repeats of whole responses, which a restart forgets."""
    repeats = {
        offset
        for offset, result in expected.messages.items()
        if result.reason is SkipReason.REPEATED_RESPONSE
    }
    assert found.encoded(repeats) == expected.encoded(repeats), f"seed {seed}"
    for offset, result in found.messages.items():
        if offset not in repeats:
            assert result == expected.messages[offset], f"seed {seed}, offset {offset}"


@pytest.mark.parametrize(
    ("seeds", "block_bits", "requests", "more"),
    [
        (range(120), 5, 20, ()),
        # Smaller blocks make time pass in shorter logs, of which more can be tried.
        *((range(first, first + 400), 2, 8, ()) for first in range(1_000, 6_000, 1_000)),
        (range(6_000, 6_150), 1, 24, ("restarts after a clock that was ahead",)),
    ],
    ids=str,
)
def test_restarts_anywhere_tell_every_outcome_exactly_once(
    monkeypatch: pytest.MonkeyPatch,
    seeds: range,
    block_bits: int,
    requests: int,
    more: tuple[str, ...],
) -> None:
    quicken_time(monkeypatch, block_bits)
    core = pipeline(LIMITS)
    occurred: Counter[str] = Counter(dict.fromkeys((*SEEN, *more), 0))
    for seed in seeds:
        random, log = Random(seed), RandomLog(seed, requests)
        expected = undisturbed(core, log)
        found = restarted(core, log, cuts_of(random, log))
        assert_equal(seed, expected, found)
        for position, checkpoint in found.checkpoints.items():
            assert checkpoint == expected.checkpoints[position], f"seed {seed} at {position}"
        occurred += log.hazards + found.restarts
        occurred += Counter(map(short, expected.outcomes))
        occurred += Counter(map(short_message, expected.messages.values()))
    print(dict(occurred))
    never = [hazard for hazard in occurred if not occurred[hazard]]
    assert not never


def test_bounds_and_silence_tell_every_outcome_exactly_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index, "open_budget", lambda _: (50, 10))
    quicken_time(monkeypatch)
    occurred: Counter[str] = Counter()
    for seed in range(SEEDS):
        random, log = Random(seed), RandomLog(seed, tame=True)
        core = pipeline(msgspec.structs.replace(LIMITS, max_reread=random.choice((40, 150, 1000))))
        silent = cuts_of(random, log) if random.random() < 0.5 else set()
        expected = undisturbed(core, log, silent)
        assert_equal(seed, expected, restarted(core, log, cuts_of(random, log), silent))
        occurred += Counter(map(short, expected.outcomes))
    print(dict(occurred))
    for reason in ("too_long", "bound", "partition_silent"):
        assert occurred[f"incomplete({reason})"] > SEEDS // 10


def test_a_shorter_timeout_after_a_restart_still_publishes_every_open_request_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request that ends during re-reading by the new settings still gets its outcome."""
    quicken_time(monkeypatch)
    expected_outcomes = 0
    for seed in range(SEEDS):
        random, log = Random(seed), RandomLog(seed, 8, tame=True)
        long, short_timeout = (
            pipeline(msgspec.structs.replace(LIMITS, idle_timeout_ms=idle, duplicate_window_ms=0))
            for idle in (6_000, 300)
        )
        done = Pass()
        before = long.partition(TOPIC, 0, log.messages[0].offset())
        cut = random.choice(log.busy)
        for message in log.messages[: cut + 1]:
            done.take(before, message)
        checkpoint = found_again(before)
        assert checkpoint.settings != short_timeout.settings_digest
        reported_before = {result.response.place for result in done.outcomes}
        after = short_timeout.resume(TOPIC, 0, checkpoint)
        for message in log.messages[first_at(log, checkpoint.start.offset) :]:
            done.take(after, message)
        done.finish(after)
        places = Counter(result.response.place for result in done.outcomes)
        assert set(places.values()) <= {1}, f"seed {seed}"
        assert not reported_before & set(checkpoint.open), f"seed {seed}"
        assert set(checkpoint.open) <= set(places), f"seed {seed}"
        expected_outcomes += len(checkpoint.open)
    assert expected_outcomes > SEEDS


def test_a_start_that_was_eaten_leaves_no_listed_request_without_an_outcome() -> None:
    """Retention may delete first events while no consumer reads; such requests are reported."""
    eaten = 0
    for seed in range(SEEDS):
        random, log = Random(seed), RandomLog(seed, 8)
        core = pipeline(LIMITS)
        before = core.partition(TOPIC, 0, log.messages[0].offset())
        done = Pass()
        for message in log.messages[: random.choice(log.busy) + 1]:
            done.take(before, message)
        checkpoint = found_again(before)
        low = random.randrange(checkpoint.start.offset, checkpoint.position + 1)
        after = core.resume(TOPIC, 0, checkpoint)
        resumed = Pass()
        for message in log.messages[first_at(log, low) :]:
            resumed.take(after, message)
        resumed.finish(after)
        places = Counter(result.response.place for result in resumed.outcomes)
        gone = [place for place in checkpoint.open if place[0] < low]
        eaten += len(gone)
        for place in checkpoint.open:
            assert places[place] == 1, f"seed {seed}"
        reasons = {result.response.place: result.reason for result in resumed.outcomes}
        assert {reasons[place] for place in gone} <= {IncompleteReason.RETENTION}, f"seed {seed}"
    assert eaten > SEEDS // 3


def test_a_partition_that_is_never_read_again_to_its_position_tells_nothing() -> None:
    log = RandomLog(1)
    core = pipeline(LIMITS)
    partition = core.partition(TOPIC, 0, log.messages[0].offset())
    for message in log.messages:
        partition.feed(message)
    checkpoint = found_again(partition)
    resumed = core.resume(TOPIC, 0, checkpoint)
    for message in log.messages[first_at(log, checkpoint.start.offset) : -1]:
        resumed.feed(message)
    assert not resumed.live
    assert resumed.drain() == []


def test_a_checkpoint_without_anything_open_resumes_live_at_its_block() -> None:
    core = pipeline(LIMITS)
    partition = core.partition(TOPIC, 0, 7)
    checkpoint = found_again(partition)
    assert checkpoint.start.offset == checkpoint.position == 7
    assert core.resume(TOPIC, 0, checkpoint).live


def test_the_outcome_of_a_request_whose_first_event_is_gone_says_so() -> None:
    core = pipeline(LIMITS)
    partition = core.partition(TOPIC, 0, 0)
    checkpoint = msgspec.structs.replace(
        partition.checkpoint(TOPIC_HASH), position=50, open=((3, 0),)
    )
    resumed = core.resume(TOPIC, 0, checkpoint)
    resumed.go_live()
    [result] = resumed.drain()
    assert result.outcome is RequestOutcome.INCOMPLETE
    assert result.reason is IncompleteReason.RETENTION
    assert result.response.place == (3, 0)


def test_the_end_of_a_forgotten_stream_is_not_taken_for_a_whole_response_when_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its repeat, long after, is a request of its own, as it would have been without a restart."""
    quicken_time(monkeypatch)
    core = pipeline(LIMITS)
    end = native("once", body=last_chunk(), final=True)
    beats = [(native("long", body=chunk(), sequence=n), 8 + 200 * n) for n in range(80)]
    log = [
        *((native("once", body=chunk()), at) for at in range(8)),
        (end, 8),
        *beats,
        (end, 16_000),
    ]
    messages = [made.message(value, offset, at) for offset, (value, at) in enumerate(log)]
    partition = core.partition(TOPIC, 0, 0)
    for each in messages[:-1]:
        partition.feed(each)
    checkpoint = found_again(partition)
    assert checkpoint.start.offset == 8
    resumed = core.resume(TOPIC, 0, checkpoint)
    for each in messages[8:-1]:
        resumed.feed(each)
    accepted = MessageResult(MessageOutcome.ACCEPTED, envelope="native")
    assert partition.feed(messages[-1]) == resumed.feed(messages[-1]) == accepted
