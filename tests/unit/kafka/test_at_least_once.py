"""The consumer commits one batch of positions at a time, and the loop learns which failed."""

from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumer.kafka.at_least_once import ConsumerOffsetCommits
from consumer.telemetry.log_events import LogEvent
from tests.support.kafka_in_memory.broker import MemoryBroker
from tests.support.manual_clock import ManualClock
from tests.unit.kafka.fakes import WAIT_COORD, Log, at, failure
from tests.unit.kafka.loop_bench import LoopConsumer


class Committing:
    """Commits with a consumer of the broker in memory."""

    def __init__(self) -> None:
        self.log = Log()
        self.offsets = ConsumerOffsetCommits(self.log)
        self.broker = MemoryBroker(ManualClock())
        self.consumer = LoopConsumer(self.broker, self.offsets.on_commit)

    def fail(self, code: int) -> None:
        """Have the next commit fail."""
        self.broker.fail_next["consumer.commit"] = [failure(code)]

    def commit(self, *positions: TopicPartition, wait: bool = False) -> None:
        self.offsets.add(positions)
        commit = self.offsets.commit_and_wait if wait else self.offsets.commit
        commit(cast("Consumer", self.consumer))

    @property
    def committed(self) -> list[list[tuple[int, int]]]:
        """Partition and offset of each position, by commit."""
        return [[(one.partition, one.offset) for one in commit] for commit in self.consumer.commits]


@pytest.fixture
def committing() -> Committing:
    return Committing()


def test_while_a_commit_is_unanswered_the_newest_positions_wait(committing: Committing) -> None:
    """Without a broker, commits stay unanswered for most of a minute."""
    for offset in range(5):
        committing.commit(at(offset), at(10 * offset, 1))
    assert committing.committed == [[(0, 0), (1, 0)]]
    assert committing.offsets.pending
    committing.consumer.poll(0)
    committing.commit()
    committing.consumer.poll(0)
    assert committing.committed[1] == [(0, 4), (1, 40)]
    assert not committing.offsets.pending
    assert committing.offsets.pop_failed() == []


@pytest.mark.parametrize("wait", [False, True])
def test_without_positions_nothing_is_committed(committing: Committing, *, wait: bool) -> None:
    committing.commit(wait=wait)
    assert committing.committed == []
    assert not committing.offsets.pending


def test_positions_of_revoked_partitions_are_not_committed(committing: Committing) -> None:
    committing.offsets.add([at(1, 0), at(2, 1)])
    committing.offsets.drop_revoked([at(-1001, 0), at(-1001, 5)])
    committing.commit(wait=True)
    assert committing.committed == [[(1, 2)]]


def test_a_commit_before_a_revocation_does_not_wait_for_the_previous_one(
    committing: Committing,
) -> None:
    committing.consumer.answers_commits = False
    committing.commit(at(1))
    committing.commit(at(2), wait=True)
    assert committing.committed == [[(0, 1)], [(0, 2)]]


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
@pytest.mark.parametrize("how", ["call", "call and wait", "answer"])
def test_a_commit_that_may_succeed_later_is_logged_and_left_to_the_next(
    committing: Committing, code: int, how: str
) -> None:
    positions = [at(1, 0), at(2, 1)]
    if how == "answer":
        committing.commit(*positions)
        committing.offsets.on_commit(KafkaError(code), positions)
    else:
        committing.fail(code)
        committing.commit(*positions, wait=how == "call and wait")
    assert not committing.offsets.pending
    assert committing.offsets.pop_failed() == [("input", 0), ("input", 1)]
    assert committing.offsets.pop_failed() == []
    [line] = committing.log.of(LogEvent.COMMIT_FAILED)
    assert (line["level"], line["action"]) == ("warning", "committing again")


def test_of_a_commit_that_succeeds_in_part_only_the_rest_has_failed(
    committing: Committing,
) -> None:
    class Rejected(TopicPartition):
        """A position as the client returns it; only the client can set its error."""

        error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)

    committing.commit(at(1, 0), at(2, 1))
    committing.offsets.on_commit(None, [at(1, 0), Rejected("input", 1, 2)])
    assert committing.offsets.pop_failed() == [("input", 1)]
    [line] = committing.log.of(LogEvent.COMMIT_FAILED)
    assert (line["topic"], line["partition"]) == ("input", 1)


@pytest.mark.parametrize(
    "code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.OFFSET_METADATA_TOO_LARGE]
)
def test_a_commit_that_will_never_succeed_ends_the_service(
    committing: Committing, code: int
) -> None:
    committing.fail(code)
    committing.commit(at(1))
    with pytest.raises(KafkaException) as raised:
        committing.offsets.pop_failed()
    assert raised.value.args[0].code() == code
