"""The committer delivers one batch at a time, and the main thread learns each result once."""

import threading
from collections.abc import Iterator

import pytest

from consumer.kafka.batch import Batch, PartitionBatch
from consumer.kafka.committer import CommitResult, Committer
from consumer.kafka.delivery import DeliveryResult
from consumer.kafka.errors import Stopped
from consumer.telemetry.outcome_counts import OutcomeCounts
from tests.support.manual_clock import ManualClock
from tests.unit.kafka.fakes import at

SECONDS = 10
LOST = [at(-1, 0)]


class FakeDelivery:
    """Delivers when the test allows it.

    Attributes:
        may_start: set it to let the start end; it is set at first.
        may_deliver: set it to let a batch through; it is set at first.
        failures: by name of a method, what it raises.
        error: why batches are aborted.

    """

    def __init__(self) -> None:
        self.may_start, self.may_deliver = threading.Event(), threading.Event()
        self.begun, self.idled, self.stopped = (threading.Event() for _ in range(3))
        self.failures: dict[str, Exception] = {}
        self.error: str | None = None
        self.batches: list[Batch] = []
        self.may_start.set()
        self.may_deliver.set()

    def start(self) -> None:
        self._wait_for(self.may_start, "start")

    def deliver(self, batch: Batch) -> DeliveryResult:
        self.begun.set()
        self._wait_for(self.may_deliver, "deliver")
        self.batches.append(batch)
        return DeliveryResult(batch, self.error, dropped=2)

    def idle(self) -> None:
        self.idled.set()
        self._fail("idle")

    def stop(self) -> None:
        self.stopped.set()

    def _wait_for(self, event: threading.Event, method: str) -> None:
        while not event.wait(0.01):
            if self.stopped.is_set():
                raise Stopped
        self._fail(method)

    def _fail(self, method: str) -> None:
        if method in self.failures:
            raise self.failures[method]


def batch(*partitions: int) -> Batch:
    return Batch([PartitionBatch(at(7, one), [], OutcomeCounts()) for one in partitions or [0]])


@pytest.fixture
def delivery() -> FakeDelivery:
    return FakeDelivery()


@pytest.fixture
def idle(delivery: FakeDelivery, monkeypatch: pytest.MonkeyPatch) -> Iterator[Committer]:
    """Return a committer whose thread has not been started."""
    monkeypatch.setattr("consumer.kafka.committer._IDLE_S", 0.001)
    committer = Committer(delivery, ManualClock())
    yield committer
    delivery.may_deliver.set()
    committer.stop()


@pytest.fixture
def committer(idle: Committer) -> Committer:
    idle.start()
    return idle


def result_of(committer: Committer, given: Batch) -> CommitResult:
    committer.hand_over(given)
    assert committer.wait_until_delivered(SECONDS)
    result = committer.pop_result()
    assert result is not None
    return result


def test_a_committer_has_started_when_its_delivery_has(
    idle: Committer, delivery: FakeDelivery
) -> None:
    delivery.may_start.clear()
    idle.start()
    assert not idle.wait_until_started(0.01)
    delivery.may_start.set()
    assert idle.wait_until_started(SECONDS)


def test_a_stop_ends_a_start(idle: Committer, delivery: FakeDelivery) -> None:
    delivery.may_start.clear()
    idle.start()
    idle.stop()
    assert not idle.wait_until_started(0)
    idle._thread.join(SECONDS)
    assert not idle._thread.is_alive()


@pytest.mark.parametrize("error", [None, "the group has moved on"])
def test_a_result_is_returned_once(
    committer: Committer, delivery: FakeDelivery, error: str | None
) -> None:
    """Returned twice, outcomes would be counted twice, or delivered twice after an abort."""
    delivery.error = error
    for _ in range(2):
        given = batch()
        result = result_of(committer, given)
        assert (result.batch, result.error, result.dropped) == (given, error, 2)
        assert committer.pop_result() is None


def test_there_is_no_result_while_a_batch_is_in_flight(
    committer: Committer, delivery: FakeDelivery
) -> None:
    delivery.may_deliver.clear()
    committer.hand_over(batch())
    assert not committer.wait_until_delivered(0)
    assert committer.busy
    assert committer.pop_result() is None
    delivery.may_deliver.set()
    assert committer.wait_until_delivered(SECONDS)
    assert committer.busy, "its result has not been taken"
    assert committer.pop_result() is not None
    assert not committer.busy


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_second_batch_is_rejected_until_the_first_result_is_taken(
    committer: Committer, delivery: FakeDelivery, *, in_flight: bool
) -> None:
    """An aborted batch would be forgotten."""
    if in_flight:
        delivery.may_deliver.clear()
    committer.hand_over(batch())
    assert committer.wait_until_delivered(0 if in_flight else SECONDS) is not in_flight
    with pytest.raises(RuntimeError, match="still in flight"):
        committer.hand_over(batch())


@pytest.mark.parametrize("error", [None, "the group has moved on"])
@pytest.mark.parametrize("delivered_first", [False, True])
def test_partitions_that_were_lost_meanwhile_are_not_still_assigned(
    committer: Committer, delivery: FakeDelivery, error: str | None, *, delivered_first: bool
) -> None:
    """Their positions would be committed over the new owner's, or their records sent again."""
    delivery.error = error
    if not delivered_first:
        delivery.may_deliver.clear()
    committer.hand_over(batch(0, 1))
    assert committer.wait_until_delivered(SECONDS if delivered_first else 0) is delivered_first
    committer.drop_revoked(LOST)
    delivery.may_deliver.set()
    assert committer.wait_until_delivered(SECONDS)
    result = committer.pop_result()
    assert result is not None
    assert [share.key for share in result.still_assigned] == [("input", 1)]
    assert len(result.batch.partitions) == 2


def test_a_partition_that_was_lost_and_assigned_again_counts_again(committer: Committer) -> None:
    committer.drop_revoked(LOST)
    assert len(result_of(committer, batch(0)).still_assigned) == 1


def test_a_stop_gives_up_the_batch_in_flight(committer: Committer, delivery: FakeDelivery) -> None:
    delivery.may_deliver.clear()
    committer.hand_over(batch())
    assert delivery.begun.wait(SECONDS)
    committer.stop()
    assert committer.wait_until_delivered(SECONDS)
    assert committer.pop_result() is None, "the batch does not count as delivered"


def test_a_committer_that_was_never_started_can_be_stopped(idle: Committer) -> None:
    """A service may fail before its loop begins."""
    idle.stop()
    assert not idle.busy


def test_the_producers_callbacks_run_while_nothing_is_written(
    committer: Committer, delivery: FakeDelivery
) -> None:
    assert not committer.busy
    assert delivery.idled.wait(SECONDS)


@pytest.mark.parametrize("method", ["start", "deliver", "idle"])
def test_the_main_thread_raises_the_error_that_ended_the_committer(
    idle: Committer, delivery: FakeDelivery, method: str
) -> None:
    """A service that goes on reading without a committer would look alive for ever."""
    delivery.failures[method] = ZeroDivisionError()
    idle.start()
    if method == "deliver":
        idle.hand_over(batch())
    idle._thread.join(SECONDS)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            idle.pop_result()
        with pytest.raises(ZeroDivisionError):
            idle.wait_until_started(0)
    assert not idle.busy, "the main thread does not wait for it"


def test_a_batch_can_be_delivered_without_a_thread(idle: Committer, delivery: FakeDelivery) -> None:
    """A simulation decides when."""
    idle.deliver_handed_over()
    given = batch()
    idle.hand_over(given)
    idle.deliver_handed_over()
    assert delivery.batches == [given]
    assert idle.pop_result() is not None
