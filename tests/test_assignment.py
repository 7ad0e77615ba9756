"""Where a partition begins, when the cluster answers late, in part, or with something strange."""

from collections.abc import Callable, Iterable
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumer.assignment import Assigned, Finder
from consumer.checkpoint import Checkpoint, encode
from consumer.clients import ClusterError
from consumer.logs import Event
from consumer.settings import Moment, Settings
from consumer.stream_time import BlockState
from tests.core.made import pipeline
from tests.kafka_fakes import TIMED_OUT, WAIT_COORD, FakeConsumer, Log, at, failure
from tests.manual_clock import ManualClock

HASH = 42
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

    def __init__(self, start: Moment = "earliest") -> None:
        self.clock, self.log, self.consumer = ManualClock(), Log(), FakeConsumer()
        self.stopping = False
        self.hash_failures: list[KafkaException] = []
        self.finder = Finder(
            Settings(topics=("input",), group="group", start=start),
            pipeline(),
            cast("Consumer", self.consumer),
            self.hashes,
            lambda: self.stopping,
            self.clock,
            self.log,
        )

    def hashes(self, topics: Iterable[str]) -> dict[str, int]:
        if self.hash_failures:
            raise self.hash_failures.pop(0)
        return dict.fromkeys(topics, HASH)

    def find(self) -> Assigned:
        return self.finder.find([at(-1001)])["input", 0]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Do not sleep, and remember for how long."""
    sleeps: list[float] = []
    monkeypatch.setattr("consumer.assignment.time.sleep", sleeps.append)
    return sleeps


def checkpoint(position: int, start: int, *places: tuple[int, int], topic: int = HASH) -> str:
    return encode(Checkpoint(position, topic, 0, BlockState(start), places))


def test_without_a_commit_it_begins_where_start_says() -> None:
    found = Found("latest")
    found.consumer.watermarks[0] = 5, 9
    assigned = found.find()
    assert (assigned.core.position, assigned.core.live, assigned.handed) == (9, True, None)


def test_a_time_after_the_last_message_begins_at_the_end() -> None:
    found = Found(1_767_225_600_000)
    found.consumer.watermarks[0] = 5, 9
    assert found.find().core.position == 9


def test_it_is_read_again_from_the_start_of_its_checkpoint() -> None:
    found = Found()
    found.consumer.watermarks[0] = 0, 100
    found.consumer.stored[0] = at(70, metadata=checkpoint(70, 32, (40, 0)))
    assigned = found.find()
    assert (assigned.core.position, assigned.core.live, assigned.handed) == (32, False, 70)
    [line] = found.log.of(Event.REREAD_STARTED)
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
    [line] = found.log.of(Event.REREAD_STARTED)
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
    assert (assigned.core.position, assigned.core.live, assigned.handed) == (starts_at, True, None)
    [line] = found.log.of(Event.CHECKPOINT_IGNORED)
    assert line == line | {"level": "warning", "offset": offset, "starts_at": starts_at}
    assert line["reason"]


def test_a_checkpoint_of_a_newer_version_is_refused() -> None:
    found = Found()
    found.consumer.watermarks[0] = 0, 100
    found.consumer.stored[0] = at(70, metadata="a99.something")
    with pytest.raises(ClusterError, match=r"'group'.*partition 0 of topic 'input'.*a99"):
        found.find()


# What is asked of the cluster


def _fails(found: Found, question: str, *codes: int) -> None:
    failures = [failure(code) for code in codes]
    if question == "hashes":
        found.hash_failures = failures
    else:
        found.consumer.failures[question] = failures


QUESTIONS = ["committed", "hashes", "watermarks", "offsets_for_times"]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("code", PASSING)
def test_what_may_pass_is_asked_again_and_said(
    slept: list[float], question: str, code: int
) -> None:
    found = Found(1_767_225_600_000)
    _fails(found, question, code, code)
    assert found.find().core.position == 0
    assert len(slept) == 2
    assert [line["follows"] for line in found.log.of(Event.KAFKA_ERROR)] == ["asked again"] * 2


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_will_not_pass_is_not_asked_again(slept: list[float], question: str) -> None:
    found = Found(1_767_225_600_000)
    _fails(found, question, KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        found.find()
    assert slept == []


def test_a_question_is_given_up_before_the_group_gives_up_on_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """max.poll.interval.ms is five minutes, and nobody polls meanwhile."""
    found = Found()
    monkeypatch.setattr("consumer.assignment.time.sleep", lambda _seconds: found.clock.advance(30))
    _fails(found, "committed", *[TIMED_OUT] * 100)
    begun = found.clock.monotonic()
    with pytest.raises(KafkaException):
        found.find()
    assert found.clock.monotonic() - begun < 300


def test_a_stop_ends_the_asking(slept: list[float]) -> None:
    found = Found()
    found.stopping = True
    _fails(found, "committed", TIMED_OUT)
    with pytest.raises(KafkaException):
        found.find()
    assert slept == []


def _with_error(code: int) -> Callable[..., list[TopicPartition]]:
    """Return an answer that is an error for one partition; only the client can set it."""

    class Refused(TopicPartition):
        error = KafkaError(code)

    return lambda given, timeout: [Refused(one.topic, one.partition) for one in given if timeout]


def test_the_error_of_a_single_partition_is_seen(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offset reads as if nothing had ever been committed: the topic would be read anew."""
    found = Found()
    answer = found.consumer.committed
    answers = [_with_error(KafkaError.UNSTABLE_OFFSET_COMMIT), answer]

    def committed(given: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return answers.pop(0)(given, timeout)

    monkeypatch.setattr(found.consumer, "committed", committed)
    found.consumer.stored[0] = at(0, metadata=checkpoint(0, 0))
    assert found.find().handed == 0
    assert len(slept) == 1

    forbidden = _with_error(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(found.consumer, "committed", forbidden)
    with pytest.raises(KafkaException):
        found.find()
