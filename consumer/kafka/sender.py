"""Produces messages, waits for acknowledgements, and replaces messages that brokers reject."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from consumer.core.message import trace_of
from consumer.core.output_messages import OutputMessage
from consumer.kafka.errors import ClientsLostError, DeliveryError, Stopped, cause_of
from consumer.telemetry.log_events import LogEvent, Logger

_POLL_S: Final = 0.005  # A poll does not return early for an acknowledgement.
# Brokers reject a timestamp that a topic does not allow under either code.
_MAYBE_TIMESTAMP: Final = frozenset({KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP})
# A broker rejects whole batches: these codes may be due to another message of the same batch.
_MAYBE_ANOTHER_MESSAGE: Final = _MAYBE_TIMESTAMP | {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError._INVALID_DIFFERENT_RECORD,  # noqa: SLF001 - the client's public constants are named so.
}

RejectedOutput = tuple[OutputMessage, KafkaError]


class Sender:
    """Produces messages and waits for their acknowledgements.

    Args:
        producer: the only producer.
        topics: topic name of each kind of output.
        transactional: whether one rejected message aborts everything in flight.
        log: where rejected messages are logged.

    Attributes:
        stopping: whether to give up unacknowledged messages.

    """

    def __init__(
        self, producer: Producer, topics: Mapping[str, str], log: Logger, *, transactional: bool
    ) -> None:
        self.stopping = False
        self._producer = producer
        self._topics = topics
        self._transactional = transactional
        self._log = log
        self._rejected: list[RejectedOutput] = []
        self._send_alone: set[int] = set()  # Identities of outputs.

    @property
    def topics(self) -> list[str]:
        """Names of the output topics."""
        return list(self._topics.values())

    def send(self, outputs: Iterable[OutputMessage]) -> KafkaError | None:
        """Produce outputs and wait for their acknowledgements.

        Returns:
            the error of the first rejected output, if any; `pop_rejected` returns all of them.

        Raises:
            KafkaException: the producer accepts no more messages.
            Stopped: `stop` was called meanwhile.

        """
        for output in outputs:
            alone = id(output) in self._send_alone
            if alone:
                self._wait()
            self._produce(output)
            if alone:
                self._wait()
            if self._transactional and self._rejected:
                break
        self._wait()
        return self._rejected[0][1] if self._rejected else None

    def pop_rejected(self) -> list[RejectedOutput]:
        """Return the outputs that were rejected since the last call, with their errors."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def replace(self, rejected: Iterable[RejectedOutput]) -> dict[int, OutputMessage | None]:
        """Return what to send instead of each rejected output, by identity; None: drop it.

        An output that may have been rejected because of another one is sent alone from now on,
        until `forget_retries` is called.

        Raises:
            DeliveryError: the broker will never accept one of them.

        """
        replacements: dict[int, OutputMessage | None] = {}
        dropped = []
        for output, error in rejected:
            code = error.code()
            was_alone = id(output) in self._send_alone
            if code == KafkaError.MSG_SIZE_TOO_LARGE and was_alone:
                replacements[id(output)] = None  # After a restart it would be rejected again.
                dropped.append(output)
            elif code not in _MAYBE_ANOTHER_MESSAGE or (was_alone and not output.timestamp):
                self._log_failure(output, error=error.str(), action="stopping")
                raise DeliveryError(
                    f"topic {self._topics[output.output]!r} rejects a message: {error.str()}; "
                    "check the topic's configuration and this service's permission to write"
                )
            else:
                retry = output
                if code in _MAYBE_TIMESTAMP:
                    retry = msgspec.structs.replace(output, timestamp=0)
                self._send_alone.add(id(retry))
                replacements[id(output)] = retry
        if dropped:
            self._log_failure(
                dropped[0],
                error="the message is larger than its topic allows",
                outputs=len(dropped),
                action="dropped",
            )
        return replacements

    def forget_retries(self) -> None:
        """Forget which outputs to send alone: later outputs may have the same identities."""
        self._send_alone.clear()

    def idle(self) -> None:
        """Run the producer's callbacks while there is nothing to send.

        Raises:
            ClientsLostError: the producer has failed.

        """
        try:
            self._producer.poll(0)
        except KafkaException as error:
            raise ClientsLostError(f"producer: {cause_of(error).str()}") from error

    def stop(self) -> None:
        """Give up unacknowledged messages."""
        self.stopping = True

    def _produce(self, output: OutputMessage) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topics[output.output],
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
                self._send_alone.add(id(output))  # The client checks each message on its own.
                self._rejected.append((output, cause_of(error)))
                return
            else:
                return

    def _wait(self) -> None:
        """Wait until no message is in flight; `flush` would fail after a fatal error."""
        while len(self._producer) and not (self._transactional and self._rejected):
            self._poll()

    def _poll(self) -> None:
        if self.stopping:
            raise Stopped
        self._producer.poll(_POLL_S)

    def _on_delivery(
        self, output: OutputMessage, error: KafkaError | None, _message: object
    ) -> None:
        if error is not None:
            self._rejected.append((output, error))

    def _log_failure(self, output: OutputMessage, **fields: object) -> None:
        topic, partition, offset = output.source
        trace = trace_of(output.headers)
        self._log.error(
            LogEvent.DELIVERY_FAILED,
            topic=topic,
            partition=partition,
            offset=offset,
            request_id=output.request_id,
            **({"traceparent": trace} if trace else {}),
            output_topic=self._topics[output.output],
            size=len(output.value),
            **fields,
        )
