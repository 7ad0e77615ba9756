"""The thread that writes: one batch at a time, and nobody misses what became of it."""

import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from consumer.kafka.batch import Batch, PartitionBatch
from consumer.kafka.committer import CommitResult, Committer
from consumer.kafka.delivery import Delivery, DeliveryResult
from consumer.kafka.errors import Stopped
from consumer.telemetry.outcome_counts import OutcomeCounts
from tests.support.manual_clock import ManualClock
from tests.unit.kafka.fakes import at

SECONDS = 10


class FakeDelivery:
    """Delivers when it is let, and what it is told to.

    Attributes:
        go: set it to let a batch through.
        failure: what the next batch ends with.
        ready: set it to let the start through; it is, at first.
        unready: what the start ends with.

    """

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.ready = threading.Event()
        self.ready.set()
        self.unready: BaseException | None = None
        self.begun, self.idled, self.stopped = (threading.Event() for _ in range(3))
        self.drops = 0
        self.error: str | None = None
        self.failure: BaseException | None = None
        self.batches: list[Batch] = []

    def start(self) -> None:
        while not self.ready.wait(0.01):
            if self.stopped.is_set():
                raise Stopped
        if self.unready is not None:
            raise self.unready

    def deliver(self, batch: Batch) -> DeliveryResult:
        self.begun.set()
        while not self.go.wait(0.01):
            if self.stopped.is_set():
                raise Stopped
        if self.failure is not None:
            raise self.failure
        self.batches.append(batch)
        return DeliveryResult(batch, self.error, self.drops)

    def idle(self) -> None:
        self.idled.set()

    def stop(self) -> None:
        self.stopped.set()


def batch(*partitions: int) -> Batch:
    return Batch([PartitionBatch(at(7, one), [], OutcomeCounts()) for one in partitions or [0]])


@pytest.fixture
def delivery() -> FakeDelivery:
    return FakeDelivery()


@pytest.fixture
def idle(delivery: FakeDelivery) -> Iterator[Committer]:
    """Return a committer whose thread has not been started."""
    committer = Committer(cast("Delivery", delivery), ManualClock())
    yield committer
    delivery.go.set()
    committer.stop()


@pytest.fixture
def committer(idle: Committer) -> Committer:
    idle.start()
    return idle


def _settled(committer: Committer, given: Batch) -> CommitResult:
    committer.hand_over(given)
    assert committer.wait_until_delivered(SECONDS)
    settled = committer.pop_result()
    assert settled is not None
    return settled


def test_it_is_started_when_its_delivery_is(idle: Committer, delivery: FakeDelivery) -> None:
    delivery.ready.clear()
    idle.start()
    assert not idle.wait_until_started(0.01)
    delivery.ready.set()
    assert idle.wait_until_started(SECONDS)


def test_a_start_that_fails_is_raised_where_somebody_sees_it(
    idle: Committer, delivery: FakeDelivery
) -> None:
    delivery.unready = ZeroDivisionError()
    idle.start()
    with pytest.raises(ZeroDivisionError):
        idle.wait_until_started(SECONDS)


def test_a_stop_ends_a_start(idle: Committer, delivery: FakeDelivery) -> None:
    delivery.ready.clear()
    idle.start()
    idle.stop()
    assert not idle.wait_until_started(0)
    idle._thread.join(SECONDS)
    assert not idle._thread.is_alive()


def test_what_became_of_a_batch_is_told_once(committer: Committer) -> None:
    """Told twice, its outcomes would be counted twice, or delivered twice where it was aborted."""
    given = batch()
    settled = _settled(committer, given)
    assert (settled.batch, settled.error, settled.dropped) == (given, None, 0)
    assert committer.pop_result() is None


def test_a_batch_that_came_to_nothing_is_told_as_such(
    committer: Committer, delivery: FakeDelivery
) -> None:
    delivery.error = "the group has moved on"
    assert _settled(committer, batch()).error == "the group has moved on"


def test_nothing_is_told_while_a_batch_is_on_its_way(
    committer: Committer, delivery: FakeDelivery
) -> None:
    delivery.go.clear()
    committer.hand_over(batch())
    assert not committer.wait_until_delivered(0)
    assert committer.busy
    assert committer.pop_result() is None
    delivery.go.set()
    assert committer.wait_until_delivered(SECONDS)
    assert committer.busy, "it is still to be told what became of it"
    assert committer.pop_result() is not None
    assert not committer.busy


def test_messages_too_large_are_told_with_their_own_batch(
    committer: Committer, delivery: FakeDelivery
) -> None:
    delivery.drops = 2
    assert [_settled(committer, batch()).dropped for _ in range(2)] == [2, 2]


def test_a_second_batch_is_refused_while_one_is_on_its_way(
    committer: Committer, delivery: FakeDelivery
) -> None:
    delivery.go.clear()
    committer.hand_over(batch())
    with pytest.raises(RuntimeError, match="still in flight"):
        committer.hand_over(batch())


def test_a_second_batch_is_refused_while_nobody_has_asked_what_became_of_the_first(
    committer: Committer,
) -> None:
    """What was aborted would be forgotten."""
    committer.hand_over(batch())
    assert committer.wait_until_delivered(SECONDS)
    with pytest.raises(RuntimeError, match="still in flight"):
        committer.hand_over(batch())


@pytest.mark.parametrize("error", [None, "the group has moved on"])
def test_parts_of_partitions_that_were_lost_meanwhile_are_not_ours_any_more(
    committer: Committer, delivery: FakeDelivery, error: str | None
) -> None:
    """Their positions would be committed over those of the new owner, or their records again."""
    delivery.error = error
    delivery.go.clear()
    committer.hand_over(batch(0, 1))
    committer.drop_revoked([at(-1, 0)])
    delivery.go.set()
    assert committer.wait_until_delivered(SECONDS)
    settled = committer.pop_result()
    assert settled is not None
    assert [part.key for part in settled.still_assigned] == [("input", 1)]
    assert len(settled.batch.partitions) == 2


def test_a_partition_lost_after_its_batch_is_done_and_before_that_is_told_is_not_ours_either(
    committer: Committer,
) -> None:
    committer.hand_over(batch())
    assert committer.wait_until_delivered(SECONDS)
    committer.drop_revoked([at(-1, 0)])
    settled = committer.pop_result()
    assert settled is not None
    assert settled.still_assigned == []


def test_a_partition_that_was_lost_and_assigned_anew_is_ours_again(committer: Committer) -> None:
    committer.drop_revoked([at(-1, 0)])
    assert len(_settled(committer, batch(0)).still_assigned) == 1


def test_a_stop_gives_up_what_is_not_delivered(
    committer: Committer, delivery: FakeDelivery
) -> None:
    delivery.go.clear()
    committer.hand_over(batch())
    assert delivery.begun.wait(SECONDS)
    committer.stop()
    assert committer.wait_until_delivered(SECONDS)
    assert committer.pop_result() is None, "nobody may take it for delivered"


def test_a_committer_that_was_never_started_can_be_stopped(idle: Committer) -> None:
    """A service may fail before its loop begins."""
    idle.stop()
    assert not idle.busy


def test_the_client_is_served_though_nothing_is_written(
    idle: Committer, delivery: FakeDelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer.kafka.committer._IDLE_S", 0.001)
    idle.start()
    assert delivery.idled.wait(SECONDS)


@pytest.mark.parametrize("where", ["deliver", "idle"])
def test_an_error_in_the_thread_is_raised_where_somebody_sees_it(
    idle: Committer, delivery: FakeDelivery, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A service that reads on with nobody to deliver would look alive for ever."""
    monkeypatch.setattr("consumer.kafka.committer._IDLE_S", 0.001)

    def broken(*_args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(delivery, where, broken)
    idle.start()
    if where == "deliver":
        idle.hand_over(batch())
    idle._thread.join(SECONDS)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            idle.pop_result()
    assert not idle.busy, "nobody waits for it either"


def test_a_batch_can_be_delivered_without_a_thread(idle: Committer, delivery: FakeDelivery) -> None:
    """So that a simulation decides when."""
    idle.deliver_handed_over()
    given = batch()
    idle.hand_over(given)
    idle.deliver_handed_over()
    assert delivery.batches == [given]
    settled: Callable[[], CommitResult | None] = idle.pop_result
    assert settled() is not None
