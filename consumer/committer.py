"""The one thread that writes: it delivers records and dead letters, then commits positions.

It owns the producer and takes one batch at a time, so that the main thread goes on reading while a
batch is on its way. At least once: positions are committed only after every message of the batch
has been acknowledged, so that a crash repeats records and never loses one.
"""

import threading
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from msgspec import Struct

from consumer.logs import Event, Logger
from consumer.records import Output

_POLL_S: Final = 0.05
_FLUSH_S: Final = 0.2
# The group has moved on: whoever has the partition now reads it again from the last commit.
_MOVED_ON: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._STATE,  # noqa: SLF001 - the client's public constants are named so.
        KafkaError._NO_OFFSET,  # noqa: SLF001
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)


class Batch(Struct, frozen=True):
    """What is committed together.

    Attributes:
        outputs: messages for the output topics.
        positions: next offset to read of each partition, with its checkpoint as metadata.

    """

    outputs: list[Output]
    positions: list[TopicPartition]


class Committer:
    """Delivers and commits batches in a thread of its own.

    Args:
        producer: the only producer; nothing else touches it.
        consumer: commits the positions.
        topics: name of the topic of each kind of output.
        log: where lines go.

    """

    def __init__(
        self, producer: Producer, consumer: Consumer, topics: dict[str, str], log: Logger
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._topics = topics
        self._log = log
        self._changed = threading.Condition()
        self._batch: Batch | None = None
        self._done: list[TopicPartition] = []
        self._failure: BaseException | None = None
        self._stopping = False
        self._undelivered: list[str] = []
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a batch is on its way."""
        return self._batch is not None

    def hand_over(self, batch: Batch) -> None:
        """Give the next batch; the one before must be done."""
        with self._changed:
            if self._batch is not None:
                raise RuntimeError("a batch is still on its way")
            self._batch = batch
            self._changed.notify_all()

    def committed(self) -> list[TopicPartition]:
        """Return the positions committed since the last call.

        Raises:
            BaseException: whatever ended the committer.

        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            done, self._done = self._done, []
            return done

    def wait(self, timeout: float) -> bool:
        """Wait until no batch is on its way; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._batch is None, timeout)

    def stop(self, timeout: float) -> None:
        """Give up what is not delivered, and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._batch is not None)
                if self._stopping:
                    return
                batch = self._batch
            done: list[TopicPartition] = []
            failure: BaseException | None = None
            try:
                if batch is not None and self._deliver(batch.outputs):
                    done = self._commit(batch.positions)
            except BaseException as error:  # noqa: BLE001 - the main thread raises it again.
                failure = error
            with self._changed:
                self._batch = None
                self._done += done
                self._failure = self._failure or failure
                self._changed.notify_all()

    def _deliver(self, outputs: list[Output]) -> bool:
        """Produce all outputs and wait for their acknowledgement; False if told to stop."""
        self._undelivered.clear()
        for output in outputs:
            if not self._produce(output):
                return False
        while self._producer.flush(_FLUSH_S):
            if self._stopping:
                return False
        if self._undelivered:
            self._log.error(
                Event.DELIVERY_FAILED, messages=len(self._undelivered), error=self._undelivered[0]
            )
            raise DeliveryError(self._undelivered[0])
        return True

    def _produce(self, output: Output) -> bool:
        while not self._stopping:
            try:
                self._producer.produce(
                    self._topics[output.kind],
                    key=output.key,
                    value=output.value,
                    headers=output.headers,
                    timestamp=output.timestamp,
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                self._producer.poll(_POLL_S)  # The queue is full: wait, never drop.
            else:
                return True
        return False

    def _on_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._undelivered.append(error.str())

    def _commit(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        """Commit positions; what the group no longer gives us is left to its new owner."""
        while positions and not self._stopping:
            try:
                results = self._consumer.commit(offsets=positions, asynchronous=False)
            except KafkaException as error:
                cause = error.args[0]
                if cause.code() in _MOVED_ON:
                    self._log.warning(Event.COMMIT_FAILED, error=cause.str(), follows="left")
                    return []
                if not cause.retriable():
                    raise
                self._log.warning(Event.COMMIT_FAILED, error=cause.str(), follows="retried")
                continue
            return _accepted(results or [], self._log)
        return []


class DeliveryError(Exception):
    """The broker will never take a message."""


def _accepted(results: list[TopicPartition], log: Logger) -> list[TopicPartition]:
    for result in results:
        if result.error is not None:
            log.warning(
                Event.COMMIT_FAILED,
                topic=result.topic,
                partition=result.partition,
                error=result.error.str(),
                follows="left",
            )
    return [result for result in results if result.error is None]
