"""What nobody would tell: silence, held offsets, topics made anew, and how far reading again is."""

from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError

from consumer.core.checkpoint import Checkpoint
from consumer.core.stream_time import BlockState
from consumer.kafka.assigned_partition import AssignedPartition
from consumer.kafka.batch import PartitionKey
from consumer.kafka.context import Context
from consumer.kafka.partition_monitor import PartitionMonitor
from consumer.settings.settings import Settings
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.stop import Stop
from tests.support.manual_clock import ManualClock
from tests.unit.core.made import chunk, message, native, pipeline
from tests.unit.kafka.fakes import HASH, TIMED_OUT, FakeConsumer, FakeTopics, Log, failure


class Watched:
    """Partitions in the hand of the test, each read up to its offset 1."""

    def __init__(self, partitions: int = 1, *, open_requests: int = 1, idle: float = 120.0) -> None:
        self.clock, self.log = ManualClock(), Log()
        self.consumer, self.topics = FakeConsumer(), FakeTopics()
        real = cast("Consumer", self.consumer)
        settings = Settings(topics=("input",), idle_timeout=idle)
        context = Context(settings, self.clock, self.log, Stop())
        self.monitor = PartitionMonitor(context, real, self.topics)
        self.assigned: dict[PartitionKey, AssignedPartition] = {}
        made = pipeline()
        for number in range(partitions):
            core = made.partition("input", number, 0)
            if open_requests:
                core.feed(message(native("open", sequence=0, body=chunk())))
            assigned = AssignedPartition(core, HASH, None, 0.0)
            assigned.end, assigned.at_end_since = 1, self.clock.monotonic()
            self.consumer.watermarks[number] = 0, 1
            self.assigned["input", number] = assigned

    def silent_for(self, seconds: float) -> int:
        """Let time pass second by second, and return how many requests were closed."""
        return self._looking(seconds, LogEvent.PARTITION_SILENT, self._close_silent)

    def held_for(self, seconds: float) -> int:
        """Let time pass second by second, and return how often the held offset was told."""
        return self._looking(seconds, LogEvent.LAST_STABLE_OFFSET_BLOCKED, self._tell_held)

    def _looking(self, seconds: float, event: LogEvent, look: Callable[[], None]) -> int:
        before = len(self.log.of(event))
        for _ in range(int(seconds)):
            self.clock.advance(1)
            look()
        return len(self.log.of(event)) - before

    def _close_silent(self) -> None:
        self.monitor.close_silent(self.assigned)

    def _tell_held(self) -> None:
        self.monitor.log_blocked_offsets(self.assigned)

    @property
    def first(self) -> AssignedPartition:
        return self.assigned["input", 0]


@pytest.fixture
def watched() -> Watched:
    return Watched()


# Silence


def test_silence_closes_only_after_its_time_since_the_end_was_reached(watched: Watched) -> None:
    assert watched.silent_for(119) == 0
    assert watched.silent_for(1) == 1
    assert watched.first.core.open_requests == 0
    [line] = watched.log.of(LogEvent.PARTITION_SILENT)
    assert (line["topic"], line["partition"], line["requests"]) == ("input", 0, 1)


def test_a_partition_whose_end_was_not_reached_is_not_silent(watched: Watched) -> None:
    watched.first.at_end_since = None
    assert watched.silent_for(300) == 0


def test_nothing_is_asked_for_a_partition_without_open_requests() -> None:
    watched = Watched(open_requests=0)
    watched.consumer.failures["watermarks"] = [failure(TIMED_OUT)]
    assert watched.silent_for(300) == 0
    assert watched.consumer.failures["watermarks"]


def test_a_partition_that_is_read_again_is_not_silent(watched: Watched) -> None:
    """Its requests may end in what is still to be read."""
    checkpoint = Checkpoint(50, HASH, 0, BlockState(0), ((0, 0),))
    core = pipeline().resume("input", 0, checkpoint)
    core.feed(message(native("open", sequence=0, body=chunk())))
    watched.first.core = core
    assert not core.live
    assert watched.silent_for(300) == 0


@pytest.mark.parametrize("failing", ["watermarks", "cached"])
def test_without_a_broker_nobody_knows_whether_it_is_silent(watched: Watched, failing: str) -> None:
    watched.consumer.failures[failing] = [failure(TIMED_OUT)]
    assert watched.silent_for(239) == 0, "its time begins anew"
    assert watched.silent_for(1) == 1


@pytest.mark.parametrize("more", ["visible", "written"])
def test_where_more_was_written_than_read_it_is_not_silent(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """It may be on its way, or held back by a transaction, which only the last fetch has seen."""
    ends = {"visible": 1, "written": 1, more: 2}
    questions = []

    def watermarks(_at: object, *, cached: bool = False, **_options: object) -> tuple[int, int]:
        questions.append(cached)
        return 0, ends["written" if cached else "visible"]

    monkeypatch.setattr(watched.consumer, "get_watermark_offsets", watermarks)
    assert watched.silent_for(239) == 0
    assert len(questions) == 2, "once each, though it was looked at many times"
    ends[more] = 1
    assert watched.silent_for(1) == 1


def test_of_many_silent_partitions_only_one_question_waits_for_an_absent_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each waits a second; the loop has to turn, or the group takes this member for dead."""
    watched = Watched(50)
    questions = 0

    def watermarks(*_args: object, **_options: object) -> tuple[int, int]:
        nonlocal questions
        questions += 1
        raise failure(TIMED_OUT)

    monkeypatch.setattr(watched.consumer, "get_watermark_offsets", watermarks)
    watched.clock.advance(121)
    watched.monitor.close_silent(watched.assigned)
    assert questions == 1


# Held offsets


@pytest.fixture
def held(watched: Watched) -> Watched:
    """Return a partition of which 40 messages after the last one that was read are hidden."""
    watched.consumer.written[0] = 41
    watched._tell_held()
    return watched


def test_messages_that_are_hidden_for_long_are_told_with_their_number(held: Watched) -> None:
    """Nothing else shows why nothing comes: there is no lag that one could see."""
    assert held.held_for(29) == 0
    assert held.held_for(1) == 1
    [line] = held.log.of(LogEvent.LAST_STABLE_OFFSET_BLOCKED)
    assert line == line | {
        "level": "warning",
        "topic": "input",
        "partition": 0,
        "offset": 1,
        "hidden_messages": 40,
        "seconds": 30,
    }


def test_they_are_told_though_the_end_is_never_reached(held: Watched) -> None:
    """A reader at the last stable offset is not told that it has reached an end."""
    held.first.at_end_since = None
    assert held.held_for(30) == 1


def test_they_are_told_again_after_a_while_and_not_every_second(held: Watched) -> None:
    assert held.held_for(329) == 1
    assert held.held_for(1) == 1


def test_nothing_is_told_where_nothing_is_hidden(watched: Watched) -> None:
    assert watched.held_for(1_000) == 0


def test_messages_that_may_be_read_and_are_not_yet_are_not_hidden(held: Watched) -> None:
    """The broker may be slow, or the service."""
    held.consumer.watermarks[0] = 0, 41
    assert held.held_for(1_000) == 0


def test_whatever_is_read_begins_the_time_anew(held: Watched) -> None:
    assert held.held_for(60) == 1
    held.first.core.position = 2
    assert held.held_for(30) == 0
    assert held.held_for(1) == 1


@pytest.mark.parametrize("idle", [5.0, 120.0])
def test_looks_for_silence_do_not_keep_them_from_being_told(idle: float) -> None:
    """The last events of open requests are what is hidden as a rule."""
    held = Watched(idle=idle)
    held.consumer.written[0] = 41
    for _ in range(200):
        held.silent_for(1)
        held.held_for(1)
    lines = held.log.of(LogEvent.LAST_STABLE_OFFSET_BLOCKED)
    assert [line["seconds"] for line in lines] == [30, 330]
    assert held.first.core.open_requests == 1


def test_of_many_held_partitions_only_one_question_waits_for_an_absent_broker() -> None:
    held = Watched(50)
    held.consumer.written = dict.fromkeys(range(50), 41)
    held._tell_held()
    held.consumer.failures["watermarks"] = [failure(TIMED_OUT)] * 50
    held.clock.advance(30)
    held._tell_held()
    assert len(held.consumer.failures["watermarks"]) == 49


def test_a_held_partition_whose_broker_is_absent_is_not_asked_for_every_second(
    held: Watched,
) -> None:
    """A second of each turn would go by without anything being read from the others."""
    held.consumer.failures["watermarks"] = [failure(TIMED_OUT)] * 50
    assert held.held_for(90) == 0
    assert len(held.consumer.failures["watermarks"]) == 47
    held.consumer.failures.clear()
    assert held.held_for(30) == 1


# Topics made anew


def test_a_topic_whose_id_is_another_one_is_noticed_for_all_its_partitions() -> None:
    watched = Watched(2)
    watched.topics.ids["input"] = "another id"
    watched.clock.advance(10)
    assert watched.monitor.recreated(watched.assigned) == [("input", 0), ("input", 1)]
    assert watched.topics.asked == [["input"]], "once for all of them"


def test_a_topic_whose_id_is_the_same_is_left_alone(watched: Watched) -> None:
    for _ in range(100):
        watched.clock.advance(1)
        assert watched.monitor.recreated(watched.assigned) == []
    assert len(watched.topics.asked) == 10


def test_the_loop_does_not_wait_for_the_answer(watched: Watched) -> None:
    """And does not ask again while there is none, or questions would pile up."""
    watched.topics.silent = True
    watched.topics.ids["input"] = "another id"
    for _ in range(100):
        watched.clock.advance(10)
        assert watched.monitor.recreated(watched.assigned) == []
    assert len(watched.topics.asked) == 1


def test_an_answer_that_fails_says_nothing_of_the_topic(watched: Watched) -> None:
    """A guess would take every topic for another one whenever a broker is away."""
    watched.topics.failures = [failure(TIMED_OUT)]
    watched.clock.advance(10)
    assert watched.monitor.recreated(watched.assigned) == []
    assert watched.log.lines == []
    watched.topics.ids["input"] = "another id"
    watched.clock.advance(10)
    assert watched.monitor.recreated(watched.assigned) == [("input", 0)]


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC])
def test_a_topic_that_is_gone_is_told_once_until_it_is_there_again(
    watched: Watched, code: int
) -> None:
    def look() -> None:
        watched.clock.advance(10)
        assert watched.monitor.recreated(watched.assigned) == []

    watched.topics.failures = [failure(code), failure(code)]
    look()
    look()
    [line] = watched.log.of(LogEvent.TOPIC_UNAVAILABLE)
    assert (line["level"], line["topic"]) == ("error", "input")
    look()
    watched.topics.failures = [failure(code)]
    look()
    assert len(watched.log.of(LogEvent.TOPIC_UNAVAILABLE)) == 2


def test_without_partitions_there_is_nothing_to_notice(watched: Watched) -> None:
    watched.clock.advance(10)
    assert watched.monitor.recreated({}) == []


# Reading again


def test_how_far_a_partition_was_read_again_is_told_now_and_then(watched: Watched) -> None:
    checkpoint = Checkpoint(50, HASH, 0, BlockState(0), ((0, 0),))
    core = pipeline().resume("input", 0, checkpoint)
    core.feed(message(native("open", sequence=0, body=chunk())))
    watched.first.core = core
    for _ in range(25):
        watched.clock.advance(1)
        watched.monitor.log_reread_progress(watched.assigned)
    lines = watched.log.of(LogEvent.REREAD_PROGRESS)
    assert len(lines) == 2
    assert lines[0] == lines[0] | {"partition": 0, "offset": 1, "position": 50, "remaining": 49}


def test_nothing_is_told_of_a_partition_that_is_live(watched: Watched) -> None:
    watched.clock.advance(100)
    watched.monitor.log_reread_progress(watched.assigned)
    assert watched.log.lines == []


# What the gauges show


def test_the_state_is_that_of_all_partitions_together() -> None:
    watched = Watched(partitions=3)
    watched.consumer.watermarks[1] = 0, 11
    state = watched.monitor.state(watched.assigned)
    assert (state.assigned, state.open_requests, state.rereading) == (3, 3, 0)
    assert state.lags == {("input", 0): 0, ("input", 1): 10, ("input", 2): 0}


def test_what_an_open_transaction_hides_counts_as_lag(watched: Watched) -> None:
    watched.consumer.written[0] = 8
    assert watched.monitor.state(watched.assigned).lags == {("input", 0): 7}


def test_a_partition_whose_end_is_not_known_shows_no_lag(watched: Watched) -> None:
    watched.consumer.watermarks[0] = OFFSET_INVALID, OFFSET_INVALID
    assert watched.monitor.state(watched.assigned).lags == {}
    watched.consumer.failures["cached"] = [failure(KafkaError._UNKNOWN_PARTITION)]
    assert watched.monitor.state(watched.assigned).lags == {}


def test_the_age_of_the_oldest_open_request_is_stream_time(watched: Watched) -> None:
    """What began before stream time was known counts from when it was."""
    core = watched.first.core
    for offset in range(1, 200):
        name = "old" if offset < 100 else "new"
        value = native(name, sequence=offset % 100, body=chunk())
        core.feed(message(value, offset, at=offset * 100))
    age = watched.monitor.state(watched.assigned).oldest_open_age
    assert age == 12.8
