"""What Kafka does not report: silence, blocked offsets, recreated topics."""

from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from consumer.core.checkpoint import Checkpoint, topic_hash
from consumer.core.partition import Partition
from consumer.core.stream_time import BlockState
from consumer.kafka.assigned_partition import AssignedPartition
from consumer.kafka.batch import PartitionKey
from consumer.kafka.context import Context
from consumer.kafka.partition_monitor import PartitionMonitor
from consumer.settings.settings import Settings
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.stop import Stop
from tests.support.kafka_in_memory.administrator import MemoryAdministrator
from tests.support.kafka_in_memory.broker import MemoryBroker
from tests.support.kafka_in_memory.consumer import MemoryConsumer
from tests.support.kafka_in_memory.log import Outcome
from tests.support.manual_clock import ManualClock
from tests.unit.core.made import chunk, message, native, pipeline
from tests.unit.kafka.fakes import TIMED_OUT, Log, failure

_UPSTREAM = "upstream"
_WATERMARKS = "consumer.get_watermark_offsets"
_IDS = "administrator.describe_topics"
_OPEN = native("open", sequence=0, body=chunk())


class Monitored:
    """Partitions with one message each, which was read."""

    def __init__(self, partitions: int = 1, *, open_requests: int = 1, idle: float = 120.0) -> None:
        self.clock, self.log = ManualClock(), Log()
        self.broker = MemoryBroker(self.clock)
        self.broker.create_topic("input", partitions)
        self.calls: list[str] = []
        self.broker.between = self.calls.append
        self.consumer = MemoryConsumer(self.broker, {"group.id": "group"})
        self.administrator = MemoryAdministrator(self.broker)
        settings = Settings(topics=("input",), idle_timeout=idle)
        context = Context(settings, self.clock, self.log, Stop())
        self.monitor = PartitionMonitor(
            context, cast("Consumer", self.consumer), self.administrator
        )
        self.partitions: dict[PartitionKey, AssignedPartition] = {}
        self.upstream = self.broker.init_producer(_UPSTREAM, 1e12)
        made = pipeline()
        for number in range(partitions):
            self.write(1, number)
            core = made.partition("input", number, 0)
            if open_requests:
                core.feed(message(_OPEN))
            core.position = 1
            self.assign(core)
        self.consumer.assign([TopicPartition("input", number, 0) for number in range(partitions)])
        self.fetch()
        self.calls.clear()

    def assign(self, core: Partition) -> AssignedPartition:
        """Let a partition be at its end."""
        topic_id = topic_hash(self.broker.topic_id("input"))
        partition = AssignedPartition(core, topic_id, None, 0.0)
        partition.end, partition.at_end_since = 1, self.clock.monotonic()
        self.partitions[partition.key] = partition
        return partition

    def assign_re_read(self) -> AssignedPartition:
        """Let partition 0 be at offset 1 of a stretch that is re-read up to 50."""
        core = pipeline().resume("input", 0, Checkpoint(50, 0, 0, BlockState(0), ((0, 0),)))
        core.feed(message(_OPEN))
        assert not core.live
        return self.assign(core)

    def write(self, count: int, partition: int = 0) -> None:
        for _ in range(count):
            self.broker.append(("input", partition), (None, b"", []))

    def hide(self, count: int) -> None:
        """Write messages in transactions that stay open, and let the consumer see their number."""
        for number in range(len(self.partitions)):
            for _ in range(count):
                producer = _UPSTREAM, self.upstream
                self.broker.append(("input", number), (None, b"", []), producer=producer)
        self.fetch()

    def end_hiding(self, outcome: Outcome) -> None:
        self.broker.end_transaction(_UPSTREAM, self.upstream, outcome)

    def fetch(self) -> None:
        self.consumer.consume(1_000)

    def fail(self, operation: str, *codes: int) -> None:
        self.broker.fail_next[operation] = [failure(code) for code in codes]

    def silent_for(self, seconds: float) -> int:
        """Let time pass second by second, and return how often requests were closed."""
        return self._check_for(seconds, LogEvent.PARTITION_SILENT, self.monitor.close_silent)

    def blocked_for(self, seconds: float) -> int:
        """Let time pass second by second, and return how often a blocked offset was logged."""
        check = self.monitor.log_blocked_offsets
        return self._check_for(seconds, LogEvent.LAST_STABLE_OFFSET_BLOCKED, check)

    def _check_for(
        self,
        seconds: float,
        event: LogEvent,
        check: Callable[[dict[PartitionKey, AssignedPartition]], None],
    ) -> int:
        before = len(self.log.of(event))
        for _ in range(int(seconds)):
            self.clock.advance(1)
            check(self.partitions)
        return len(self.log.of(event)) - before

    def recreated(self, after_s: float = 10) -> list[PartitionKey]:
        self.clock.advance(after_s)
        return self.monitor.recreated(self.partitions)

    def recreate_topic(self) -> None:
        self.broker.delete_topic("input")
        self.broker.create_topic("input", len(self.partitions))

    @property
    def first(self) -> AssignedPartition:
        return self.partitions["input", 0]


@pytest.fixture
def monitored() -> Monitored:
    return Monitored()


# Silence


def test_silence_closes_requests_after_its_time_since_the_end_was_reached(
    monitored: Monitored,
) -> None:
    assert monitored.silent_for(119) == 0
    assert monitored.silent_for(1) == 1
    assert monitored.first.core.open_requests == 0
    [line] = monitored.log.of(LogEvent.PARTITION_SILENT)
    assert (line["topic"], line["partition"], line["requests"]) == ("input", 0, 1)


def test_a_partition_whose_end_was_not_reached_is_not_silent(monitored: Monitored) -> None:
    monitored.first.at_end_since = None
    assert monitored.silent_for(300) == 0


def test_a_partition_that_is_re_read_is_not_silent(monitored: Monitored) -> None:
    """Its requests may end in what is still to be read."""
    monitored.assign_re_read()
    assert monitored.silent_for(300) == 0


def test_nothing_is_asked_for_a_partition_without_open_requests() -> None:
    monitored = Monitored(open_requests=0)
    assert monitored.silent_for(300) == 0
    assert monitored.calls == []


@pytest.mark.parametrize("failing", [0, 1])
def test_without_a_broker_no_partition_counts_as_silent(monitored: Monitored, failing: int) -> None:
    def fail_one(_operation: str) -> None:
        monitored.calls.append("")
        if len(monitored.calls) == failing + 1:
            raise failure(TIMED_OUT)

    monitored.broker.between = fail_one
    assert monitored.silent_for(239) == 0, "its time begins again"
    assert monitored.silent_for(1) == 1


@pytest.mark.parametrize("more", ["visible", "hidden"])
def test_where_more_was_written_than_read_a_partition_is_not_silent(
    monitored: Monitored, more: str
) -> None:
    """It may be on its way, or hidden by a transaction, which only the last fetch has seen."""
    if more == "visible":
        monitored.write(1)
    else:
        monitored.hide(1)
    assert monitored.silent_for(239) == 0
    assert monitored.calls.count(_WATERMARKS) == 2, "once each, though it was checked many times"
    monitored.first.end = 2
    assert monitored.silent_for(1) == 1


def test_of_many_silent_partitions_only_one_question_waits_for_an_absent_broker() -> None:
    """Each waits a second; the loop has to turn, or the group expels this member."""
    monitored = Monitored(50)
    monitored.broker.away = True
    monitored.clock.advance(121)
    monitored.monitor.close_silent(monitored.partitions)
    assert monitored.calls.count(_WATERMARKS) == 1


# Blocked offsets


@pytest.fixture
def blocked(monitored: Monitored) -> Monitored:
    """Return a partition of which 40 messages after the last one that was read are hidden."""
    return block(monitored)


def block(monitored: Monitored) -> Monitored:
    monitored.hide(40)
    monitored.monitor.log_blocked_offsets(monitored.partitions)
    return monitored


@pytest.mark.parametrize("reached_the_end", [True, False])
def test_messages_that_are_hidden_for_long_are_logged_with_their_number(
    blocked: Monitored, *, reached_the_end: bool
) -> None:
    """There is no lag that one could see, and the client need not report the end."""
    if not reached_the_end:
        blocked.first.at_end_since = None
    assert blocked.blocked_for(29) == 0
    assert blocked.blocked_for(1) == 1
    [line] = blocked.log.of(LogEvent.LAST_STABLE_OFFSET_BLOCKED)
    assert line == line | {
        "level": "warning",
        "topic": "input",
        "partition": 0,
        "offset": 1,
        "hidden_messages": 40,
        "seconds": 30,
    }


def test_they_are_logged_again_after_a_while_and_not_every_second(blocked: Monitored) -> None:
    assert blocked.blocked_for(329) == 1
    assert blocked.blocked_for(1) == 1


def test_nothing_is_logged_where_nothing_is_hidden(monitored: Monitored) -> None:
    assert monitored.blocked_for(1_000) == 0


def test_messages_that_may_be_read_and_are_not_yet_are_not_hidden(blocked: Monitored) -> None:
    """The broker may be slow, or the service."""
    blocked.end_hiding(Outcome.COMMITTED)
    assert blocked.blocked_for(1_000) == 0


def test_a_message_that_is_read_begins_the_time_again(blocked: Monitored) -> None:
    assert blocked.blocked_for(60) == 1
    blocked.first.core.position = 2
    assert blocked.blocked_for(30) == 0
    assert blocked.blocked_for(1) == 1


@pytest.mark.parametrize("idle", [5.0, 120.0])
def test_checks_for_silence_do_not_keep_blocked_offsets_from_being_logged(idle: float) -> None:
    """The last events of open requests are what is hidden as a rule."""
    blocked = Monitored(idle=idle)
    blocked.hide(40)
    for _ in range(200):
        blocked.silent_for(1)
        blocked.blocked_for(1)
    lines = blocked.log.of(LogEvent.LAST_STABLE_OFFSET_BLOCKED)
    assert [line["seconds"] for line in lines] == [30, 330]
    assert blocked.first.core.open_requests == 1


def test_of_many_blocked_partitions_only_one_question_waits_for_an_absent_broker() -> None:
    blocked = block(Monitored(50))
    blocked.calls.clear()
    blocked.broker.away = True
    blocked.clock.advance(30)
    blocked.monitor.log_blocked_offsets(blocked.partitions)
    assert blocked.calls.count(_WATERMARKS) == 2, "one of the last fetch, and one of the broker"


def test_a_blocked_partition_whose_broker_is_absent_is_not_asked_for_every_second(
    blocked: Monitored,
) -> None:
    """A second of each turn would go by without anything being read from the others."""
    blocked.calls.clear()
    blocked.broker.away = True
    assert blocked.blocked_for(90) == 0
    assert blocked.calls.count(_WATERMARKS) == 3 * 2
    blocked.broker.away = False
    assert blocked.blocked_for(30) == 1


# Recreated topics


def test_a_recreated_topic_is_noticed_for_all_its_partitions_with_one_question() -> None:
    monitored = Monitored(2)
    monitored.recreate_topic()
    assert monitored.recreated() == [("input", 0), ("input", 1)]
    assert monitored.calls.count(_IDS) == 1


def test_a_topic_whose_id_is_the_same_is_left_alone(monitored: Monitored) -> None:
    for _ in range(100):
        assert monitored.recreated(after_s=1) == []
    assert monitored.calls.count(_IDS) == 10


def test_the_loop_does_not_wait_for_the_answer(
    monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not ask again while there is none, or questions would pile up."""
    questions = []
    describe = monitored.administrator.describe_topics

    def counted(topics: set[str]) -> object:
        questions.append(topics)
        return describe(topics)

    monkeypatch.setattr(monitored.administrator, "describe_topics", counted)
    monitored.administrator.is_silent = True
    monitored.recreate_topic()
    for _ in range(100):
        assert monitored.recreated() == []
    assert questions == [{"input"}]


def test_a_question_that_fails_says_nothing_of_the_topic(monitored: Monitored) -> None:
    """A guess would take every topic for another one whenever a broker is away."""
    monitored.recreate_topic()
    monitored.fail(_IDS, TIMED_OUT)
    assert monitored.recreated() == []
    assert monitored.log.lines == []
    assert monitored.recreated() == [("input", 0)]


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC])
def test_a_topic_that_is_gone_is_logged_once_until_it_is_there_again(
    monitored: Monitored, code: int
) -> None:
    monitored.fail(_IDS, code, code)
    assert monitored.recreated() == monitored.recreated() == []
    [line] = monitored.log.of(LogEvent.TOPIC_UNAVAILABLE)
    assert (line["level"], line["topic"]) == ("error", "input")
    assert monitored.recreated() == []
    monitored.fail(_IDS, code)
    assert monitored.recreated() == []
    assert len(monitored.log.of(LogEvent.TOPIC_UNAVAILABLE)) == 2


def test_without_partitions_there_is_nothing_to_notice(monitored: Monitored) -> None:
    monitored.clock.advance(10)
    assert monitored.monitor.recreated({}) == []


# Re-reading


def test_the_progress_of_re_reading_is_logged_now_and_then(monitored: Monitored) -> None:
    monitored.assign_re_read()
    for _ in range(25):
        monitored.clock.advance(1)
        monitored.monitor.log_reread_progress(monitored.partitions)
    lines = monitored.log.of(LogEvent.REREAD_PROGRESS)
    assert len(lines) == 2
    assert lines[0] == lines[0] | {"partition": 0, "offset": 1, "position": 50, "remaining": 49}


def test_no_progress_is_logged_of_a_partition_that_is_live(monitored: Monitored) -> None:
    monitored.clock.advance(100)
    monitored.monitor.log_reread_progress(monitored.partitions)
    assert monitored.log.lines == []


# Gauges


def test_the_state_is_that_of_all_partitions_together() -> None:
    monitored = Monitored(partitions=3)
    monitored.write(10, 1)
    monitored.fetch()
    state = monitored.monitor.state(monitored.partitions)
    assert (state.assigned, state.open_requests, state.rereading) == (3, 3, 0)
    assert state.lags == {("input", 0): 0, ("input", 1): 10, ("input", 2): 0}


def test_what_an_open_transaction_hides_counts_as_lag(monitored: Monitored) -> None:
    monitored.hide(7)
    assert monitored.monitor.state(monitored.partitions).lags == {("input", 0): 7}


def test_a_partition_whose_end_is_not_known_shows_no_lag(monitored: Monitored) -> None:
    monitored.fail(_WATERMARKS, KafkaError._UNKNOWN_PARTITION)
    assert monitored.monitor.state(monitored.partitions).lags == {}
    monitored.consumer.unassign()  # Nothing was fetched then.
    assert monitored.monitor.state(monitored.partitions).lags == {}


def test_the_age_of_the_oldest_open_request_is_stream_time(monitored: Monitored) -> None:
    """What began before stream time was known counts from when it was."""
    core = monitored.first.core
    for offset in range(1, 1_000):
        name = "old" if offset < 100 else "new"
        value = native(name, sequence=offset % 100, body=chunk())
        core.feed(message(value, offset, at=offset * 100))
    # Of 31 blocks of 32 messages, the nine first and the nine last do not count.
    assert monitored.monitor.state(monitored.partitions).oldest_open_age == 38.4  # 12 blocks.
