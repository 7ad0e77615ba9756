"""The only thread that writes: it delivers one batch at a time.

It owns the producer, so that the main thread goes on reading while a batch is in flight.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec
from confluent_kafka import TopicPartition

from consumer.kafka.batch import Batch, PartitionBatch, PartitionKey
from consumer.kafka.delivery import Delivery, DeliveryResult
from consumer.kafka.errors import Stopped
from consumer.telemetry.clock import Clock

_IDLE_S: Final = 1.0
_JOIN_S: Final = 1.0


class CommitResult(DeliveryResult, frozen=True, kw_only=True):
    """What became of a batch, and when.

    Attributes:
        duration_s: seconds from the hand-over to the result.
        ended_at_ms: when the result came, in milliseconds since 1970.
        revoked: partitions that this member lost since the hand-over.

    """

    duration_s: float
    ended_at_ms: int
    revoked: frozenset[PartitionKey] = frozenset()

    @property
    def still_assigned(self) -> list[PartitionBatch]:
        """The shares of partitions that were not revoked since the hand-over.

        The other shares are dropped on purpose: the next owner of a partition reads it from the
        last committed position.
        """
        return [share for share in self.batch.partitions if share.key not in self.revoked]


class Committer:
    """Deliver batches in a thread of its own.

    Args:
        delivery: how to deliver; used by this thread only.
        clock: for durations.

    """

    def __init__(self, delivery: Delivery, clock: Clock) -> None:
        self._delivery = delivery
        self._clock = clock
        self._handed_over_s = 0.0
        self._changed = threading.Condition()
        self._batch: Batch | None = None
        self._result: CommitResult | None = None
        self._revoked: set[PartitionKey] = set()
        self._failure: BaseException | None = None
        self._started = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)

    @property
    def busy(self) -> bool:
        """Whether a batch is in flight, or its result has not been taken with `pop_result`."""
        return self._batch is not None or self._result is not None

    def start(self) -> None:
        """Start the thread, which prepares the delivery and then accepts batches."""
        self._thread.start()

    def wait_until_started(self, timeout_s: float) -> bool:
        """Wait until the delivery is ready for batches; return whether it is.

        Raises:
            BaseException: the exception that ended the thread.

        """
        self._wait_until(lambda: self._started or self._failure is not None, timeout_s)
        if self._failure is not None:
            raise self._failure
        return self._started

    def hand_over(self, batch: Batch) -> None:
        """Hand over the next batch.

        Raises:
            RuntimeError: the result of the previous batch has not been taken.

        """
        with self._changed:
            if self._batch is not None or self._result is not None:
                raise RuntimeError("the previous batch is still in flight or its result not taken")
            self._batch, self._handed_over_s = batch, self._clock.monotonic()
            self._revoked.clear()
            self._changed.notify_all()

    def drop_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Note partitions that this member no longer owns."""
        with self._changed:
            self._revoked.update((one.topic, one.partition) for one in partitions)

    def pop_result(self) -> CommitResult | None:
        """Return the result of the last batch once; None while there is none.

        Raises:
            BaseException: the exception that ended the thread.

        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            result, self._result = self._result, None
            if result is None:
                return None
            return msgspec.structs.replace(result, revoked=frozenset(self._revoked))

    def wait_until_delivered(self, timeout_s: float) -> bool:
        """Wait until no batch is in flight; return whether none is."""
        return self._wait_until(lambda: self._batch is None, timeout_s)

    def stop(self) -> None:
        """Give up undelivered messages and end the thread, unless the client blocks it."""
        self._delivery.stop()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def deliver_handed_over(self) -> None:
        """Deliver the batch that was handed over, if there is one.

        Raises:
            Exception: as `Delivery.deliver`.

        """
        batch = self._batch
        if batch is None:
            return
        delivered = self._delivery.deliver(batch)
        result = CommitResult(
            delivered.batch,
            delivered.error,
            delivered.dropped,
            duration_s=self._clock.monotonic() - self._handed_over_s,
            ended_at_ms=self._clock.wall(),
        )
        with self._changed:
            self._result = result  # First, since `busy` is read without the lock.
            self._batch = None
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            with suppress(Stopped):
                self._delivery.start()
                with self._changed:
                    self._started = True
                    self._changed.notify_all()
                while self._wait_for_batch():
                    self.deliver_handed_over()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it again.
            self._failure = error
        with self._changed:
            self._stopping = True
            self._batch = None
            self._changed.notify_all()

    def _wait_until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(reached, timeout_s)

    def _wait_for_batch(self) -> bool:
        """Wait for a batch; return False once `stop` is called."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._stopping or self._batch, _IDLE_S):
                self._delivery.idle()
            return not self._stopping
