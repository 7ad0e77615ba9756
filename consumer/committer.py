"""The one thread that writes: it delivers records and dead letters.

It owns the producer and takes one batch at a time, so that the main thread goes on reading while a
batch is on its way. At least once: a batch's positions are given back to be committed only after
every message of it has been acknowledged, so that a crash repeats records and never loses one.
"""

import threading
from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from msgspec import Struct

from consumer.logs import Event, Logger
from consumer.records import Output

_POLL_S: Final = 0.05
_FLUSH_S: Final = 0.2
_IDLE_S: Final = 1.0
_JOIN_S: Final = 1.0
# Timestamps that a topic does not take are refused under either name.
_PERHAPS_TIMESTAMP: Final = frozenset({KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP})
# What is wrong with one message makes the broker refuse all that share its batch.
_PERHAPS_ANOTHERS_FAULT: Final = _PERHAPS_TIMESTAMP | {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError._INVALID_DIFFERENT_RECORD,  # noqa: SLF001
}

Place = tuple[str, int]  # Topic and partition.


class DeliveryError(Exception):
    """The broker will never take a message."""


class Batch(Struct, frozen=True):
    """What is committed together.

    Attributes:
        outputs: messages for the output topics.
        positions: next offset to read of each partition, with its checkpoint as metadata.

    """

    outputs: list[Output]
    positions: list[TopicPartition]


class Committer:
    """Delivers batches in a thread of its own.

    Args:
        producer: the only producer; nothing else touches it.
        topics: name of the topic of each kind of output.
        log: where lines go.

    Attributes:
        dropped: how many messages were larger than their topic takes, even alone.

    """

    def __init__(self, producer: Producer, topics: dict[str, str], log: Logger) -> None:
        self.dropped = 0
        self._producer = producer
        self._topics = topics
        self._log = log
        self._changed = threading.Condition()
        self._batch: Batch | None = None
        self._delivered: list[TopicPartition] = []
        self._gone: set[Place] = set()
        self._failure: BaseException | None = None
        self._stopping = False
        self._refused: list[tuple[Output, KafkaError]] = []
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
            self._gone.clear()
            self._changed.notify_all()

    def disown(self, partitions: Iterable[TopicPartition]) -> None:
        """Give back no positions of partitions that belong to somebody else by now."""
        with self._changed:
            self._gone.update((one.topic, one.partition) for one in partitions)

    def delivered(self) -> list[TopicPartition]:
        """Return the positions of the batches delivered since the last call: to be committed.

        Raises:
            BaseException: whatever made a batch fail for good.

        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            positions, self._delivered = self._delivered, []
            return [one for one in positions if (one.topic, one.partition) not in self._gone]

    def wait(self, timeout: float) -> bool:
        """Wait until no batch is on its way; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._batch is None, timeout)

    def stop(self) -> None:
        """Give up what is not delivered, and end the thread, unless the client holds it up."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                delivered = self._deliver(batch.outputs)
                with self._changed:
                    self._batch = None
                    if delivered:
                        self._delivered += batch.positions
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it again.
            self._failure = error
        with self._changed:
            self._stopping = True
            self._batch = None
            self._changed.notify_all()

    def _next(self) -> Batch | None:
        """Wait for a batch; None if told to stop."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._stopping or self._batch, _IDLE_S):
                self._producer.poll(0)  # Hands over what the client has logged.
            return None if self._stopping else self._batch

    def _deliver(self, outputs: list[Output]) -> bool:
        """Produce all outputs and wait for their acknowledgement; False if told to stop."""
        if not self._send(outputs):
            return False
        too_large: list[Output] = []
        for output, error in self._take_refused():
            if error.code() not in _PERHAPS_ANOTHERS_FAULT:
                raise self._undeliverable(output, error)
            if error.code() in _PERHAPS_TIMESTAMP:
                output = msgspec.structs.replace(output, timestamp=0)  # noqa: PLW2901
            if not self._send([output]):
                return False
            for _, alone in self._take_refused():
                if alone.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise self._undeliverable(output, alone)
                too_large.append(output)
        if too_large:  # Stopping would meet them again for ever.
            self.dropped += len(too_large)
            self._log.error(
                Event.DELIVERY_FAILED,
                **self._description(too_large[0]),
                error="larger than its topic takes",
                messages=len(too_large),
                follows="dropped",
            )
        return True

    def _send(self, outputs: list[Output]) -> bool:
        for output in outputs:
            if not self._produce(output):
                return False
        while self._producer.flush(_FLUSH_S):
            if self._stopping:
                return False
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
                    on_delivery=partial(self._on_delivery, output),
                )
            except BufferError:
                self._producer.poll(_POLL_S)  # The queue is full: wait, never drop.
            except KafkaException as error:
                self._refused.append((output, error.args[0]))
                return True
            else:
                return True
        return False

    def _on_delivery(self, output: Output, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._refused.append((output, error))

    def _take_refused(self) -> list[tuple[Output, KafkaError]]:
        refused, self._refused = self._refused, []
        return refused

    def _undeliverable(self, output: Output, error: KafkaError) -> DeliveryError:
        self._log.error(
            Event.DELIVERY_FAILED, **self._description(output), error=error.str(), follows="stopped"
        )
        return DeliveryError(f"topic {self._topics[output.kind]!r}: {error.str()}")

    def _description(self, output: Output) -> dict[str, object]:
        """Say what a message is: records and dead letters name their source alike."""
        content = msgspec.json.decode(output.value)
        return {
            "topic": content["source_topic"],
            "partition": content["source_partition"],
            "offset": content["source_first_offset"],
            "request_id": content["request_id"],
            "output_topic": self._topics[output.kind],
            "size": len(output.value),
        }
