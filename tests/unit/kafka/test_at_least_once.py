"""Commits go one after the other, and what the group does not take is known."""

from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumer.kafka.at_least_once import ConsumerOffsetCommits
from consumer.telemetry.log_events import LogEvent
from tests.unit.kafka.fakes import WAIT_COORD, FakeConsumer, Log, at, failure


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def offsets(log: Log) -> ConsumerOffsetCommits:
    return ConsumerOffsetCommits(log)


@pytest.fixture
def consumer(offsets: ConsumerOffsetCommits) -> FakeConsumer:
    consumer = FakeConsumer()
    consumer.on_commit = offsets.on_commit
    return consumer


def _real(consumer: FakeConsumer) -> Consumer:
    return cast("Consumer", consumer)


def _refused(offset: int, partition: int, code: int) -> TopicPartition:
    """Return a position as the client returns it; only the client can set its error."""

    class Refused(TopicPartition):
        error = KafkaError(code)

    return Refused("input", partition, offset)


def test_while_a_commit_is_unanswered_the_newest_positions_wait(
    offsets: ConsumerOffsetCommits, consumer: FakeConsumer
) -> None:
    """A broker that is away leaves commits unanswered for most of a minute."""
    for offset in range(5):
        offsets.add([at(offset), at(10 * offset, 1)])
        offsets.commit(_real(consumer))
    assert [[one.offset for one in commit] for commit in consumer.commits] == [[0, 0]]
    assert offsets.pending
    consumer.poll(0)
    offsets.commit(_real(consumer))
    consumer.poll(0)
    assert [one.offset for one in consumer.commits[1]] == [4, 40]
    assert not offsets.pending
    assert offsets.pop_failed() == []


def test_nothing_is_committed_where_there_is_nothing_to_commit(
    offsets: ConsumerOffsetCommits, consumer: FakeConsumer
) -> None:
    offsets.add([])
    offsets.commit(_real(consumer))
    offsets.commit_and_wait(_real(consumer))
    assert consumer.commits == []
    assert not offsets.pending


def test_what_belongs_to_somebody_else_by_now_is_not_committed(
    offsets: ConsumerOffsetCommits, consumer: FakeConsumer
) -> None:
    offsets.add([at(1, 0), at(2, 1)])
    offsets.drop_revoked([at(-1001, 0), at(-1001, 5)])
    offsets.commit_and_wait(_real(consumer))
    assert [one.partition for one in consumer.commits[0]] == [1]


def test_a_commit_and_wait_does_not_wait_for_the_one_before(
    offsets: ConsumerOffsetCommits, consumer: FakeConsumer
) -> None:
    consumer.answers_commits = False
    offsets.add([at(1)])
    offsets.commit(_real(consumer))
    offsets.add([at(2)])
    offsets.commit_and_wait(_real(consumer))
    assert [commit[0].offset for commit in consumer.commits] == [1, 2]


@pytest.mark.parametrize(
    "code",
    [
        WAIT_COORD,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.NOT_COORDINATOR,
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_commit_that_may_succeed_later_is_said_and_left_to_the_next(
    offsets: ConsumerOffsetCommits, consumer: FakeConsumer, log: Log, code: int, *, at_once: bool
) -> None:
    consumer.failures["commit"] = [failure(code)]
    offsets.add([at(1, 0), at(2, 1)])
    (offsets.commit_and_wait if at_once else offsets.commit)(_real(consumer))
    assert not offsets.pending
    assert offsets.pop_failed() == [("input", 0), ("input", 1)]
    assert offsets.pop_failed() == []
    [line] = log.of(LogEvent.COMMIT_FAILED)
    assert (line["level"], line["action"]) == ("warning", "committing again")


def test_an_answer_that_is_an_error_is_left_to_the_next_commit(
    offsets: ConsumerOffsetCommits, log: Log
) -> None:
    offsets.add([at(1)])
    consumer = FakeConsumer()
    offsets.commit(_real(consumer))
    offsets.on_commit(KafkaError(WAIT_COORD), [at(1)])
    assert offsets.pop_failed() == [("input", 0)]
    assert len(log.of(LogEvent.COMMIT_FAILED)) == 1


def test_of_a_commit_that_succeeds_in_part_only_the_rest_is_left(
    offsets: ConsumerOffsetCommits, log: Log
) -> None:
    consumer = FakeConsumer()
    offsets.add([at(1, 0), at(2, 1)])
    offsets.commit(_real(consumer))
    refused = _refused(2, 1, KafkaError.UNKNOWN_TOPIC_OR_PART)
    offsets.on_commit(None, [at(1, 0), refused])
    assert offsets.pop_failed() == [("input", 1)]
    [line] = log.of(LogEvent.COMMIT_FAILED)
    assert (line["topic"], line["partition"]) == ("input", 1)


@pytest.mark.parametrize(
    "code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.OFFSET_METADATA_TOO_LARGE]
)
def test_a_commit_that_never_will_succeed_ends_the_service(
    offsets: ConsumerOffsetCommits, consumer: FakeConsumer, code: int
) -> None:
    consumer.failures["commit"] = [failure(code)]
    offsets.add([at(1)])
    offsets.commit(_real(consumer))
    with pytest.raises(KafkaException) as raised:
        offsets.pop_failed()
    assert raised.value.args[0].code() == code
