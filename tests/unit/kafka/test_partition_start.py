"""Where a partition starts, when the cluster answers late, in part, or with something strange."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumer.core.checkpoint import Checkpoint, encode, topic_hash
from consumer.core.stream_time import BlockState
from consumer.kafka.assigned_partition import AssignedPartition
from consumer.kafka.context import Context
from consumer.kafka.errors import ClientsLostError, ClusterError, Stopped
from consumer.kafka.partition_start import PartitionStarter
from consumer.settings.settings import Settings
from consumer.settings.values import Moment
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.stop import Stop
from tests.support.kafka_in_memory.administrator import MemoryAdministrator
from tests.support.kafka_in_memory.broker import MemoryBroker
from tests.support.kafka_in_memory.consumer import MemoryConsumer
from tests.support.kafka_in_memory.groups import Position
from tests.support.manual_clock import ManualClock
from tests.unit.core.made import pipeline
from tests.unit.kafka.fakes import TIMED_OUT, WAIT_COORD, Log, failure

MAX_S = 120.0
PAUSE_S = 0.2
TRANSIENT = [
    TIMED_OUT,
    WAIT_COORD,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.REQUEST_TIMED_OUT,
]


HASH = topic_hash("input-1")
START_MS = 1_767_225_600_000


class Starting:
    """A starter on the broker in memory, whose input has five partitions.

    Args:
        start: the setting.
        known: how many of the partitions there were when the service started.
        log: first offset and end of partition 0.
        settings: others than the defaults.

    """

    def __init__(
        self,
        start: Moment = "earliest",
        *,
        known: int = 1,
        log: tuple[int, int] = (0, 0),
        **settings: Any,
    ) -> None:
        self.clock, self.log, self.stop = ManualClock(), Log(), Stop()
        self.broker = MemoryBroker(self.clock)
        self.broker.create_topic("input", 5)
        self.consumer = MemoryConsumer(self.broker, {"group.id": "group"})
        self.reaches(*log)
        self._began = self.clock.monotonic()
        loaded = Settings(topics=("input",), group="group", start=start, **settings)
        self.starter = PartitionStarter(
            Context(loaded, self.clock, self.log, self.stop),
            pipeline(),
            cast("Consumer", self.consumer),
            MemoryAdministrator(self.broker),
            {"input": known},
        )

    def reaches(self, low: int, high: int, partition: int = 0, topic: str = "input") -> None:
        """Let a log have offsets from the first to the end."""
        log = self.broker.partitions[topic, partition]
        log.start, log.end = low, high

    def commit(self, offset: int, metadata: str = "", partition: int = 0) -> None:
        offsets = self.broker.group("group").offsets
        offsets["input", partition] = Position(offset, metadata, 0, None)

    def recreate_topic(self) -> None:
        self.broker.delete_topic("input")
        self.broker.create_topic("input")

    def fail(self, question: str, *codes: int) -> None:
        self.broker.fail_next[question] = [failure(code) for code in codes]

    def find(self, partition: int = 0, topic: str = "input") -> AssignedPartition:
        return self.starter.find([TopicPartition(topic, partition)])[topic, partition]

    def relocate(self, partition: AssignedPartition) -> AssignedPartition | None:
        return self.starter.relocate(("input", 0), partition)

    @property
    def waited(self) -> float:
        return self.clock.monotonic() - self._began


def state(assigned: AssignedPartition) -> tuple[int, bool, bool]:
    """Return the position, and whether the partition is live and has no committed position."""
    return assigned.core.position, assigned.core.live, assigned.is_new


def checkpoint(position: int, start: int, *places: tuple[int, int], topic: int = HASH) -> str:
    return encode(Checkpoint(position, topic, 0, BlockState(start), places))


def test_without_a_commit_it_starts_where_the_setting_says() -> None:
    assert state(Starting("latest", log=(5, 9)).find()) == (9, True, True)


def test_a_time_after_the_last_message_starts_at_the_end() -> None:
    assert Starting(START_MS, log=(5, 9)).find().core.position == 9


def test_it_is_re_read_from_the_start_of_its_checkpoint() -> None:
    starting = Starting(log=(0, 100))
    starting.commit(70, checkpoint(70, 32, (40, 0)))
    assert state(starting.find()) == (32, False, False)
    [line] = starting.log.of(LogEvent.REREAD_STARTED)
    assert line == line | {"level": "info", "offset": 32, "position": 70, "open_requests": 1}


def test_nothing_is_logged_of_a_partition_that_need_not_be_re_read() -> None:
    starting = Starting(log=(0, 100))
    starting.commit(64, checkpoint(64, 64))
    assert starting.find().core.live
    assert starting.log.lines == []


def test_where_the_start_was_deleted_re_reading_starts_at_the_first_message() -> None:
    starting = Starting(log=(50, 100))
    starting.commit(70, checkpoint(70, 32, (40, 0)))
    assert state(starting.find()) == (50, False, False)
    [line] = starting.log.of(LogEvent.REREAD_STARTED)
    assert (line["level"], line["deleted"]) == ("warning", 18)


@pytest.mark.parametrize(
    ("offset", "metadata", "start_offset"),
    [
        (70, "", 70),
        (70, "of another program", 70),
        (70, checkpoint(69, 32), 70),
        (70, checkpoint(70, 32, topic=43), 70),
        (3, "", 10),  # Deleted meanwhile.
        (500, "", 10),  # Of an earlier topic of this name.
        (500, checkpoint(500, 480, topic=43), 10),
        (500, checkpoint(500, 480), 100),  # Cut off by an unclean election.
    ],
)
def test_metadata_that_does_not_match_its_offset_is_ignored_and_logged(
    offset: int, metadata: str, start_offset: int
) -> None:
    starting = Starting(log=(10, 100))
    starting.commit(offset, metadata)
    assert state(starting.find()) == (start_offset, True, True)
    [line] = starting.log.of(LogEvent.CHECKPOINT_IGNORED)
    assert line == line | {"level": "warning", "offset": offset, "start_offset": start_offset}
    assert line["reason"]


def test_a_checkpoint_of_a_newer_version_is_refused() -> None:
    starting = Starting(log=(0, 100))
    starting.commit(70, "a99.something")
    refusal = r"'group'.*partition 0 of topic 'input'.*a99.*set newer_checkpoints to ignore"
    with pytest.raises(ClusterError, match=refusal):
        starting.find()


def test_a_checkpoint_of_a_newer_version_may_be_ignored_and_no_message_is_lost() -> None:
    """The way back after an upgrade: open requests are forgotten, and the position is kept."""
    starting = Starting(log=(0, 100), newer_checkpoints="ignore")
    starting.commit(70, "a99.something")
    assert state(starting.find()) == (70, True, True)
    [line] = starting.log.of(LogEvent.CHECKPOINT_IGNORED)
    assert (line["offset"], line["reason"]) == (70, "metadata of a newer version")


@pytest.mark.parametrize("start", ["latest", START_MS])
def test_what_was_created_after_the_service_started_starts_at_its_first_message(
    start: Moment,
) -> None:
    """It is noticed later than it is written to: from its end, those messages would be lost."""
    starting = Starting(start, log=(5, 9))
    starting.reaches(5, 9, partition=1)
    assert [starting.find(number).core.position for number in (0, 1)] == [9, 5]
    starting.broker.create_topic("another")
    starting.reaches(5, 9, topic="another")
    assert starting.find(topic="another").core.position == 5


@pytest.mark.parametrize(
    ("low", "digest_is_ours", "intact"), [(0, True, True), (50, True, False), (0, False, False)]
)
def test_only_a_state_that_can_be_found_again_counts_as_intact(
    low: int, *, digest_is_ours: bool, intact: bool
) -> None:
    """A difference after other settings or deleted messages is not a bug."""
    starting = Starting(log=(low, 100))
    digest = pipeline().settings_digest if digest_is_ours else 1
    starting.commit(70, encode(Checkpoint(70, HASH, digest, BlockState(32), ((40, 0),))))
    assert starting.find().intact is intact


def test_a_partition_that_was_added_later_starts_where_the_group_stands() -> None:
    """The service may start between the addition and the first commit; its end would be loss."""
    starting = Starting("latest", known=4)
    for offset in range(100):
        starting.broker.append(("input", 3), (None, b"", []), START_MS + offset - 40)
    start = BlockState(32, clock=START_MS)
    starting.commit(70, encode(Checkpoint(70, HASH, 0, start, ())), partition=1)
    assert starting.find(3).core.position == 40


def test_a_newer_checkpoint_of_a_lower_partition_is_refused_too() -> None:
    starting = Starting("latest", known=4)
    starting.commit(70, "a99.something", partition=1)
    with pytest.raises(ClusterError, match=r"partition 1 of topic 'input'.*newer version"):
        starting.find(3)


def test_an_ignored_newer_checkpoint_of_a_lower_partition_gives_no_time() -> None:
    starting = Starting("latest", known=4, newer_checkpoints="ignore")
    starting.reaches(0, 100, partition=3)
    starting.commit(70, "a99.something", partition=1)
    assert starting.find(3).core.position == 100


def test_at_the_first_start_of_a_group_all_partitions_start_at_their_end() -> None:
    starting = Starting("latest", known=4)
    starting.reaches(0, 100, partition=3)
    assert starting.find(3).core.position == 100


# Where reading continues


def test_deleted_messages_keep_the_state_and_move_the_position() -> None:
    starting = Starting(log=(0, 100))
    partition = starting.find()
    starting.reaches(30, 100)
    assert starting.relocate(partition) is partition
    assert partition.core.position == 30
    assert not partition.intact


def test_a_client_that_lost_its_place_without_a_deletion_leaves_the_state_intact() -> None:
    starting = Starting(log=(0, 100))
    partition = starting.find()
    assert starting.relocate(partition) is partition
    assert partition.intact


@pytest.mark.parametrize(("is_recreated", "position"), [(True, 2), (False, 6)])
def test_offsets_that_refer_to_other_messages_now_start_without_history(
    *, is_recreated: bool, position: int
) -> None:
    starting = Starting("latest", log=(0, 100))
    partition = starting.find()
    if is_recreated:
        starting.recreate_topic()
    starting.reaches(2, 6)
    found = starting.relocate(partition)
    assert found is not None
    assert found is not partition
    assert state(found) == (position, True, True)
    assert found.topic_hash == (topic_hash("input-2") if is_recreated else HASH)


def test_a_partition_that_the_recreated_topic_does_not_have_is_gone() -> None:
    """All others would wait for an answer that never comes."""
    starting = Starting()
    partition = starting.find()
    starting.recreate_topic()
    starting.fail("consumer.get_watermark_offsets", *[KafkaError._UNKNOWN_PARTITION] * 10_000)
    assert starting.relocate(partition) is None
    assert starting.waited < 11


# Questions to the cluster

QUESTIONS = [
    "consumer.committed",
    "administrator.describe_topics",
    "consumer.get_watermark_offsets",
    "consumer.offsets_for_times",
]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("code", TRANSIENT)
def test_a_question_is_repeated_while_its_error_may_pass(question: str, code: int) -> None:
    starting = Starting(START_MS)
    starting.fail(question, code, code)
    assert starting.find().core.position == 0
    assert starting.waited == pytest.approx(2 * PAUSE_S)
    [line] = starting.log.of(LogEvent.KAFKA_ERROR)
    assert line["action"] == "trying again"
    assert line["operation"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_not_repeated_where_its_error_will_not_pass(question: str) -> None:
    starting = Starting(START_MS)
    starting.fail(question, KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        starting.find()
    assert starting.waited == 0


@pytest.mark.parametrize(
    ("question", "limit_s"),
    [
        ("consumer.get_watermark_offsets", MAX_S),  # Nothing polls meanwhile.
        ("consumer.committed", 2 * 15),  # Two transactions.
    ],
)
def test_a_question_is_given_up_before_the_group_expels_this_member(
    question: str, limit_s: float
) -> None:
    starting = Starting()
    starting.fail(question, *[TIMED_OUT] * 10_000)
    with pytest.raises(ClientsLostError):
        starting.find()
    assert starting.waited == pytest.approx(limit_s, abs=1)


def test_a_stop_ends_the_questions() -> None:
    starting = Starting()
    starting.stop.request("SIGTERM")
    starting.fail("consumer.committed", TIMED_OUT)
    with pytest.raises(Stopped):
        starting.find()
    assert starting.waited == 0


def _with_error(code: int) -> Callable[..., list[TopicPartition]]:
    """Return an answer that is an error for one partition; only the client can set it."""

    class Refused(TopicPartition):
        error = KafkaError(code)

    return lambda given, timeout: [Refused(one.topic, one.partition) for one in given if timeout]


def test_the_error_of_a_single_partition_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offset reads as if nothing had ever been committed: the topic would be read again."""
    starting = Starting()
    answers = [_with_error(KafkaError.UNSTABLE_OFFSET_COMMIT), starting.consumer.committed]

    def committed(given: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return answers.pop(0)(given, timeout)

    monkeypatch.setattr(starting.consumer, "committed", committed)
    starting.commit(0, checkpoint(0, 0))
    assert not starting.find().is_new
    assert starting.waited == pytest.approx(PAUSE_S)

    forbidden = _with_error(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(starting.consumer, "committed", forbidden)
    with pytest.raises(KafkaException):
        starting.find()
