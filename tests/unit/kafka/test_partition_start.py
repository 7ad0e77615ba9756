"""Where a partition begins, when the cluster answers late, in part, or with something strange."""

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
from tests.support.manual_clock import ManualClock
from tests.unit.core.made import pipeline
from tests.unit.kafka.fakes import (
    HASH,
    TIMED_OUT,
    WAIT_COORD,
    FakeConsumer,
    FakeTopics,
    Log,
    at,
    failure,
)

MAX_S = 120.0
AGAIN_S = 0.2
PASSING = [
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


class Found:
    """A finder among fakes, and what it says."""

    def __init__(self, start: Moment = "earliest", *, known: int = 1, **settings: Any) -> None:
        self.clock, self.log, self.consumer = ManualClock(), Log(), FakeConsumer()
        self.topics, self.stop = FakeTopics(), Stop()
        self._begun = self.clock.monotonic()
        loaded = Settings(topics=("input",), group="group", start=start, **settings)
        context = Context(loaded, self.clock, self.log, self.stop)
        consumer = cast("Consumer", self.consumer)
        self.starter = PartitionStarter(
            context, pipeline(), consumer, self.topics, {"input": known}
        )

    def find(self, partition: int = 0) -> AssignedPartition:
        return self.starter.find([at(-1001, partition)])["input", partition]

    @property
    def waited(self) -> float:
        return self.clock.monotonic() - self._begun


def checkpoint(position: int, start: int, *places: tuple[int, int], topic: int = HASH) -> str:
    return encode(Checkpoint(position, topic, 0, BlockState(start), places))


def test_without_a_commit_it_begins_where_start_says() -> None:
    found = Found("latest")
    found.consumer.watermarks[0] = 5, 9
    assigned = found.find()
    assert (assigned.core.position, assigned.core.live, assigned._submitted) == (9, True, None)


def test_a_time_after_the_last_message_begins_at_the_end() -> None:
    found = Found(1_767_225_600_000)
    found.consumer.watermarks[0] = 5, 9
    assert found.find().core.position == 9


def test_it_is_read_again_from_the_start_of_its_checkpoint() -> None:
    found = Found()
    found.consumer.watermarks[0] = 0, 100
    found.consumer.stored[0] = at(70, metadata=checkpoint(70, 32, (40, 0)))
    assigned = found.find()
    assert (assigned.core.position, assigned.core.live, assigned._submitted) == (32, False, 70)
    [line] = found.log.of(LogEvent.REREAD_STARTED)
    assert line == line | {"level": "info", "offset": 32, "position": 70, "open_requests": 1}


def test_nothing_is_said_of_a_partition_that_need_not_be_read_again() -> None:
    found = Found()
    found.consumer.watermarks[0] = 0, 100
    found.consumer.stored[0] = at(64, metadata=checkpoint(64, 64))
    assert found.find().core.live
    assert found.log.lines == []


def test_a_start_that_was_deleted_is_clamped_and_said() -> None:
    found = Found()
    found.consumer.watermarks[0] = 50, 100
    found.consumer.stored[0] = at(70, metadata=checkpoint(70, 32, (40, 0)))
    assigned = found.find()
    assert (assigned.core.position, assigned.core.live) == (50, False)
    [line] = found.log.of(LogEvent.REREAD_STARTED)
    assert (line["level"], line["deleted"]) == ("warning", 18)


@pytest.mark.parametrize(
    ("offset", "metadata", "starts_at"),
    [
        (70, "", 70),
        (70, "somebody else's", 70),
        (70, checkpoint(69, 32), 70),
        (70, checkpoint(70, 32, topic=43), 70),
        (3, "", 10),  # Deleted meanwhile.
        (500, "", 10),  # Of an earlier topic of this name.
        (500, checkpoint(500, 480, topic=43), 10),
        (500, checkpoint(500, 480), 100),  # Cut off by an unclean election.
    ],
)
def test_metadata_that_says_nothing_of_this_offset_is_left_and_said(
    offset: int, metadata: str, starts_at: int
) -> None:
    found = Found()
    found.consumer.watermarks[0] = 10, 100
    found.consumer.stored[0] = at(offset, metadata=metadata)
    assigned = found.find()
    assert (assigned.core.position, assigned.core.live, assigned._submitted) == (
        starts_at,
        True,
        None,
    )
    [line] = found.log.of(LogEvent.CHECKPOINT_IGNORED)
    assert line == line | {"level": "warning", "offset": offset, "start_offset": starts_at}
    assert line["reason"]


def test_a_checkpoint_of_a_newer_version_is_refused() -> None:
    found = Found()
    found.consumer.watermarks[0] = 0, 100
    found.consumer.stored[0] = at(70, metadata="a99.something")
    refusal = r"'group'.*partition 0 of topic 'input'.*a99.*set newer_checkpoints to ignore"
    with pytest.raises(ClusterError, match=refusal):
        found.find()


def test_a_checkpoint_of_a_newer_version_may_be_ignored_and_no_message_is_lost() -> None:
    """The way back after an upgrade: open requests are forgotten, and the position is kept."""
    found = Found(newer_checkpoints="ignore")
    found.consumer.watermarks[0] = 0, 100
    found.consumer.stored[0] = at(70, metadata="a99.something")
    assigned = found.find()
    assert (assigned.core.position, assigned.core.live, assigned._submitted) == (70, True, None)
    [line] = found.log.of(LogEvent.CHECKPOINT_IGNORED)
    assert (line["offset"], line["reason"]) == (70, "metadata of a newer version")


@pytest.mark.parametrize("start", ["latest", 1_767_225_600_000])
def test_a_partition_that_came_after_the_start_of_the_service_begins_at_its_first_message(
    start: Moment,
) -> None:
    """It is noticed later than it is written to: from its end, those messages would be lost."""
    found = Found(start)
    found.consumer.watermarks |= {0: (5, 9), 1: (5, 9)}
    assert [found.find(number).core.position for number in (0, 1)] == [9, 5]


def test_a_topic_that_came_after_the_start_of_the_service_begins_at_its_first_message() -> None:
    found = Found("latest")
    found.consumer.watermarks[0] = 5, 9
    [assigned] = found.starter.find([at(-1001, topic="another")]).values()
    assert assigned.core.position == 5


@pytest.mark.parametrize(
    ("low", "digest_is_ours", "intact"), [(0, True, True), (50, True, False), (0, False, False)]
)
def test_only_a_state_that_can_be_found_again_counts_as_intact(
    low: int, *, digest_is_ours: bool, intact: bool
) -> None:
    """What differs after other settings or deleted messages is no bug."""
    found = Found()
    digest = pipeline().settings_digest if digest_is_ours else 1
    found.consumer.watermarks[0] = low, 100
    metadata = encode(Checkpoint(70, HASH, digest, BlockState(32), ((40, 0),)))
    found.consumer.stored[0] = at(70, metadata=metadata)
    assert found.find().intact is intact


# Where reading goes on


def test_deleted_messages_keep_the_state_and_move_the_position() -> None:
    found = Found()
    found.consumer.watermarks[0] = 0, 100
    assigned = found.find()
    found.consumer.watermarks[0] = 30, 100
    assert found.starter.relocate(("input", 0), assigned) is assigned
    assert assigned.core.position == 30


@pytest.mark.parametrize(("topic_id", "position"), [("another id", 2), ("id of input", 6)])
def test_offsets_that_mean_other_messages_now_begin_without_history(
    topic_id: str, position: int
) -> None:
    found = Found("latest")
    found.consumer.watermarks[0] = 0, 100
    assigned = found.find()
    found.consumer.watermarks[0] = 2, 6
    found.topics.ids["input"] = topic_id
    anew = found.starter.relocate(("input", 0), assigned)
    assert anew is not None
    assert anew is not assigned
    assert (anew.core.position, anew._submitted, anew.topic_hash) == (
        position,
        None,
        topic_hash(topic_id),
    )


def test_a_partition_that_the_new_topic_does_not_have_is_gone() -> None:
    """All others would wait for an answer that never comes."""
    found = Found()
    assigned = found.find()
    found.topics.ids["input"] = "another id"
    _fails(found, "watermarks", *[KafkaError._UNKNOWN_PARTITION] * 10_000)
    assert found.starter.relocate(("input", 0), assigned) is None
    assert found.waited < 11


def test_a_partition_that_was_added_since_the_group_began_starts_where_the_group_stands() -> None:
    """Somebody may start between the adding and the first commit; from its end on would be loss."""
    found = Found("latest", known=4)
    found.consumer.watermarks[3] = 0, 100
    found.consumer.times[3] = 40
    start = BlockState(32, now=1_767_225_600_000)
    stood = encode(Checkpoint(70, HASH, 0, start, ()))
    found.consumer.stored[1] = at(70, 1, metadata=stood)
    assert found.find(3).core.position == 40
    assert found.consumer.asked_for_times == [1_767_225_600_000]


def test_at_the_first_start_of_a_group_all_partitions_begin_at_their_end() -> None:
    found = Found("latest", known=4)
    found.consumer.watermarks[3] = 0, 100
    assert found.find(3).core.position == 100


# What is asked of the cluster


def _fails(found: Found, question: str, *codes: int) -> None:
    failures = [failure(code) for code in codes]
    if question == "hashes":
        found.topics.failures = failures
    else:
        found.consumer.failures[question] = failures


QUESTIONS = ["committed", "hashes", "watermarks", "offsets_for_times"]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("code", PASSING)
def test_what_may_pass_is_asked_again_and_said(question: str, code: int) -> None:
    found = Found(1_767_225_600_000)
    _fails(found, question, code, code)
    assert found.find().core.position == 0
    assert found.waited == pytest.approx(2 * AGAIN_S)
    [line] = found.log.of(LogEvent.KAFKA_ERROR)
    assert line["action"] == "trying again"
    assert line["operation"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_will_not_pass_is_not_asked_again(question: str) -> None:
    found = Found(1_767_225_600_000)
    _fails(found, question, KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        found.find()
    assert found.waited == 0


def test_a_question_is_given_up_before_the_group_gives_up_on_us() -> None:
    """Nobody polls meanwhile."""
    found = Found()
    _fails(found, "watermarks", *[TIMED_OUT] * 10_000)
    with pytest.raises(ClientsLostError):
        found.find()
    assert found.waited == pytest.approx(MAX_S, abs=1)


def test_offsets_that_stay_unstable_are_given_up_after_two_transactions() -> None:
    found = Found()
    _fails(found, "committed", *[TIMED_OUT] * 10_000)
    with pytest.raises(ClientsLostError):
        found.find()
    assert found.waited == pytest.approx(2 * 15, abs=1)


def test_a_stop_ends_the_asking() -> None:
    found = Found()
    found.stop.request("SIGTERM")
    _fails(found, "committed", TIMED_OUT)
    with pytest.raises(Stopped):
        found.find()
    assert found.waited == 0


def _with_error(code: int) -> Callable[..., list[TopicPartition]]:
    """Return an answer that is an error for one partition; only the client can set it."""

    class Refused(TopicPartition):
        error = KafkaError(code)

    return lambda given, timeout: [Refused(one.topic, one.partition) for one in given if timeout]


def test_the_error_of_a_single_partition_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offset reads as if nothing had ever been committed: the topic would be read anew."""
    found = Found()
    answer = found.consumer.committed
    answers = [_with_error(KafkaError.UNSTABLE_OFFSET_COMMIT), answer]

    def committed(given: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return answers.pop(0)(given, timeout)

    monkeypatch.setattr(found.consumer, "committed", committed)
    found.consumer.stored[0] = at(0, metadata=checkpoint(0, 0))
    assert found.find()._submitted == 0
    assert found.waited == pytest.approx(AGAIN_S)

    forbidden = _with_error(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(found.consumer, "committed", forbidden)
    with pytest.raises(KafkaException):
        found.find()
