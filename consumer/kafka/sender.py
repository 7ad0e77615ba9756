"""Messages on their way to the broker, and those that it refuses.

At least once: a batch is delivered when every message of it has been acknowledged, so that a crash
repeats records and never loses one.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from consumer.core.message import trace_of
from consumer.core.output_messages import OutputMessage
from consumer.kafka.batch import Batch, Stopped
from consumer.kafka.errors import ClientsLostError, DeliveryError, cause_of
from consumer.telemetry.logging_setup import LogEvent, Logger

_POLL_S: Final = 0.005  # An acknowledgement is no event that would end a poll.
# Timestamps that a topic does not take are refused under either name.
_PERHAPS_TIMESTAMP: Final = frozenset({KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP})
# What is wrong with one message makes the broker refuse all that share its batch.
_PERHAPS_ANOTHERS_FAULT: Final = _PERHAPS_TIMESTAMP | {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError._INVALID_DIFFERENT_RECORD,  # noqa: SLF001 - the client's public constants are named so.
}

RejectedOutputs = tuple[OutputMessage, KafkaError]


class Sender:
    """Produces messages and waits for them.

    Args:
        producer: the only producer.
        topics: name of the topic of each kind of output.
        transactional: whether one refusal brings down all that is on its way.
        log: where lines go.

    Attributes:
        dropped: how many messages were larger than their topic takes, even alone.
        stopping: whether to give up what is not acknowledged.

    """

    def __init__(
        self, producer: Producer, topics: Mapping[str, str], log: Logger, *, transactional: bool
    ) -> None:
        self.dropped = 0
        self.stopping = False
        self._producer = producer
        self._topics = topics
        self._transactional = transactional
        self._log = log
        self._refused: list[RejectedOutputs] = []
        self._alone: set[int] = set()

    @property
    def topics(self) -> list[str]:
        """Names of the topics that are written to."""
        return list(self._topics.values())

    def send(self, outputs: Iterable[OutputMessage]) -> KafkaError | None:
        """Produce outputs and wait for their acknowledgement.

        Returns:
            why the first one did not get there, if one did not; `refused` has all of them.

        Raises:
            KafkaException: the client takes no more messages.
            Stopped: it was told to stop.

        """
        for output in outputs:
            alone = id(output) in self._alone
            if alone:
                self._wait()
            self._produce(output)
            if alone:
                self._wait()
            if self._transactional and self._refused:
                break
        self._wait()
        return self._refused[0][1] if self._refused else None

    def refused(self) -> list[RejectedOutputs]:
        """Return the outputs that did not get there since the last call, and why."""
        refused, self._refused = self._refused, []
        return refused

    def mended(self, refused: Iterable[RejectedOutputs]) -> dict[int, OutputMessage | None]:
        """Return by identity what to send instead of outputs that were refused: None is dropped.

        What may have been refused for another's fault is sent alone, until `forget` is called.

        Raises:
            DeliveryError: the broker will never take one of them.

        """
        instead: dict[int, OutputMessage | None] = {}
        dropped = []
        for output, error in refused:
            code = error.code()
            was_alone = id(output) in self._alone
            if code == KafkaError.MSG_SIZE_TOO_LARGE and was_alone:
                instead[id(output)] = None  # Stopping would meet it again for ever.
                dropped.append(output)
            elif code not in _PERHAPS_ANOTHERS_FAULT or (was_alone and not output.timestamp):
                self._log_failure(output, error=error.str(), follows="stopped")
                raise DeliveryError(f"topic {self._topics[output.kind]!r}: {error.str()}")
            else:
                again = output
                if code in _PERHAPS_TIMESTAMP:
                    again = msgspec.structs.replace(output, timestamp=0)
                self._alone.add(id(again))
                instead[id(output)] = again
        if dropped:
            self.dropped += len(dropped)
            self._log_failure(
                dropped[0],
                error="larger than its topic takes",
                messages=len(dropped),
                follows="dropped",
            )
        return instead

    def forget(self) -> None:
        """Forget which outputs are to be sent alone."""
        self._alone.clear()

    def idle(self) -> None:
        """Hand over what the client has logged.

        Raises:
            ClientsLostError: the client is at its end.

        """
        try:
            self._producer.poll(0)
        except KafkaException as error:
            raise ClientsLostError(f"producer: {cause_of(error).str()}") from error

    def _produce(self, output: OutputMessage) -> None:
        while True:
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
                self._poll()  # The queue is full: wait, never drop.
            except KafkaException as error:
                if cause_of(error).code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                self._alone.add(id(output))  # The client looks at one message at a time.
                self._refused.append((output, cause_of(error)))
                return
            else:
                return

    def _wait(self) -> None:
        """Wait until nothing is on its way; `flush` fails where the client is at its end."""
        while len(self._producer) and not (self._transactional and self._refused):
            self._poll()

    def _poll(self) -> None:
        if self.stopping:
            raise Stopped
        self._producer.poll(_POLL_S)

    def _on_delivery(
        self, output: OutputMessage, error: KafkaError | None, _message: object
    ) -> None:
        if error is not None:
            self._refused.append((output, error))

    def _log_failure(self, output: OutputMessage, **fields: object) -> None:
        topic, partition, offset = output.source
        self._log.error(
            LogEvent.DELIVERY_FAILED,
            topic=topic,
            partition=partition,
            offset=offset,
            request_id=output.request_id,
            **_trace(output),
            output_topic=self._topics[output.kind],
            size=len(output.value),
            **fields,
        )


def _trace(output: OutputMessage) -> dict[str, str]:
    trace = trace_of(output.headers)
    return {"traceparent": trace} if trace else {}


class Sending:
    """What every delivery leaves to its sender.

    Args:
        sender: produces messages.

    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    @property
    def dropped(self) -> int:
        """How many messages were larger than their topic takes, even alone."""
        return self._sender.dropped

    def idle(self) -> None:
        """Let the client say what it has to."""
        self._sender.idle()

    def stop(self) -> None:
        """Give up what is not done."""
        self._sender.stopping = True


class AtLeastOnce(Sending):
    """Delivers batches whose positions are committed by the consumer afterwards."""

    def start(self) -> None:
        """Do nothing: there is nothing to be made ready."""

    def deliver(self, batch: Batch) -> None:
        """Deliver a batch, see `Delivery`."""
        outputs = [output for part in batch.parts for output in part.outputs]
        try:
            while self._sender.send(outputs) is not None:
                instead = self._sender.mended(self._sender.refused())
                outputs = [again for again in instead.values() if again is not None]
        except KafkaException as error:
            raise ClientsLostError(f"producer: {cause_of(error).str()}") from error
        finally:
            self._sender.forget()
