"""The one thread that writes: it takes one batch at a time and gets it to the broker.

It owns the producer, so that the main thread goes on reading while a batch is on its way.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec
from confluent_kafka import TopicPartition
from msgspec import Struct

from consumer.kafka.batch import Batch, Delivery, PartitionBatch, PartitionKey, Stopped
from consumer.telemetry.clock import Clock

_IDLE_S: Final = 1.0
_JOIN_S: Final = 1.0


class CommitResult(Struct, frozen=True):
    """What became of a batch.

    Attributes:
        batch: the batch.
        error: None if the broker has it; else why nothing of it counts.
        dropped: how many messages of it were larger than their topic takes, even alone.
        seconds: how long it took from its hand-over to the answer.
        at: when that came, in milliseconds since 1970.
        gone: partitions of it that belong to somebody else by now.

    """

    batch: Batch
    error: str | None
    dropped: int
    seconds: float
    at: int
    gone: frozenset[PartitionKey] = frozenset()

    @property
    def parts_still_assigned(self) -> list[PartitionBatch]:
        """Parts of partitions that have not been taken away meanwhile."""
        return [part for part in self.batch.parts if part.place not in self.gone]


class Committer:
    """Delivers batches in a thread of its own.

    Args:
        delivery: how; nothing else touches it.
        clock: for how long it takes.

    """

    def __init__(self, delivery: Delivery, clock: Clock) -> None:
        self._delivery = delivery
        self._clock = clock
        self._handed_over = 0.0
        self._changed = threading.Condition()
        self._batch: Batch | None = None
        self._settled: CommitResult | None = None
        self._gone: set[PartitionKey] = set()
        self._failure: BaseException | None = None
        self._started = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)

    @property
    def busy(self) -> bool:
        """Whether a batch is on its way, or `settled` has not told of it yet."""
        return self._batch is not None or self._settled is not None

    def start(self) -> None:
        """Make ready, and begin to deliver what is handed over."""
        self._thread.start()

    def started(self, timeout: float) -> bool:
        """Wait until batches may be handed over; return whether that is so.

        Raises:
            BaseException: whatever ended the thread.

        """
        self._wait_until(lambda: self._started or self._failure is not None, timeout)
        if self._failure is not None:
            raise self._failure
        return self._started

    def hand_over(self, batch: Batch) -> None:
        """Give the next batch; `settled` must have told of the one before."""
        with self._changed:
            if self._batch is not None or self._settled is not None:
                raise RuntimeError("a batch is still on its way")
            self._batch, self._handed_over = batch, self._clock.monotonic()
            self._gone.clear()
            self._changed.notify_all()

    def drop_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that partitions belong to somebody else by now."""
        with self._changed:
            self._gone.update((one.topic, one.partition) for one in partitions)

    def settled(self) -> CommitResult | None:
        """Return what became of a batch, once.

        Raises:
            BaseException: whatever ended the thread.

        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            settled, self._settled = self._settled, None
        if settled is None:
            return None
        return msgspec.structs.replace(settled, gone=frozenset(self._gone))

    def wait(self, timeout: float) -> bool:
        """Wait until no batch is on its way; return whether that is so."""
        return self._wait_until(lambda: self._batch is None, timeout)

    def stop(self) -> None:
        """Give up what is not delivered, and end the thread, unless the client holds it up."""
        self._delivery.stop()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def work(self) -> None:
        """Deliver the batch that was handed over, if there is one.

        Raises:
            Exception: as `Delivery.deliver`.

        """
        batch = self._batch
        if batch is None:
            return
        dropped_before = self._delivery.dropped
        error = self._delivery.deliver(batch)
        settled = CommitResult(
            batch,
            error,
            self._delivery.dropped - dropped_before,
            self._clock.monotonic() - self._handed_over,
            self._clock.wall(),
        )
        with self._changed:
            self._settled = settled  # First, since `busy` is asked without the lock.
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
                    self.work()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it again.
            self._failure = error
        with self._changed:
            self._stopping = True
            self._batch = None
            self._changed.notify_all()

    def _wait_until(self, reached: Callable[[], bool], timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(reached, timeout)

    def _wait_for_batch(self) -> bool:
        """Wait for a batch; False if told to stop."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._stopping or self._batch, _IDLE_S):
                self._delivery.idle()
            return not self._stopping
