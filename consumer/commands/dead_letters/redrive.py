"""Sends what dead letters hold after a fix, each exactly once.

A letter of a message has its message produced to the input topic again, and a letter of a request
has its record published. The same transaction writes a notice to the dead-letter topic, which the
next redrive reads.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from consumer.commands.dead_letters.letters import REDRIVEN_HEADER, Letter
from consumer.commands.dead_letters.sources import RedriveMessage
from consumer.kafka.administrator import Cluster
from consumer.kafka.client_config import transactional_id
from consumer.kafka.clients import make_producer
from consumer.kafka.errors import FencedError, KafkaFailureError, cause_of
from consumer.settings.settings import Settings

_MAX_BYTES: Final = 4 << 20  # Of a transaction, so that it ends long before its timeout.
_ANSWER_S: Final = 60.0
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - the client's public constants are named so.
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)


class Redriver:
    """Sends messages, each in one transaction with its notice.

    The transactional id begins with the group's name, so that the rights of the service suffice.
    All redrives share it: of two at once, the second one fences the first.

    Args:
        settings: the settings.
        cluster: limits of the cluster.

    Attributes:
        sent: number of letters that were redriven.

    Raises:
        ClusterError: a property is refused.
        KafkaFailureError: transactions are not allowed, or no coordinator answers.

    """

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self.sent = 0
        own = msgspec.structs.replace(settings, transactional_id=f"{settings.group}-redrive")
        limit = min(cluster.record_limit, cluster.letter_limit)
        self._producer: Producer = make_producer(own, limit)
        self._transactional = settings.transactional
        self._errors: list[str] = []
        if self._transactional:
            try:
                self._producer.init_transactions(_ANSWER_S)
            except KafkaException as error:
                name = transactional_id(own)
                raise KafkaFailureError(
                    f"transactional id {name!r}: {cause_of(error).str()}"
                ) from error

    def send_all(self, prepared: Iterable[tuple[Letter, RedriveMessage]]) -> list[str | None]:
        """Send the messages of letters; return the error of each, or None.

        Raises:
            FencedError: another process redrives.
            KafkaFailureError: the producer failed; the fate of a message that is not counted as
                sent is unknown.

        """
        errors: list[str | None] = []
        batch: list[tuple[Letter, RedriveMessage]] = []
        size = 0
        for letter, message in prepared:
            batch.append((letter, message))
            size += len(message.value or b"")
            if size > _MAX_BYTES or not self._transactional:
                errors += self._send_batch(batch)
                batch, size = [], 0
        return errors + self._send_batch(batch)

    def send(self, letter: Letter, message: RedriveMessage) -> str | None:
        """Send the message of one letter, see `send_all`."""
        return self._send_batch([(letter, message)])[0]

    def _send_batch(self, batch: Sequence[tuple[Letter, RedriveMessage]]) -> list[str | None]:
        """Send in one transaction; if that fails, in one transaction for each letter."""
        if not batch:
            return []
        error = self._try(batch)
        if error is None:
            self.sent += len(batch)
        if error is None or len(batch) == 1:
            return [error] * len(batch)
        return [self.send(letter, message) for letter, message in batch]

    def _try(self, batch: Sequence[tuple[Letter, RedriveMessage]]) -> str | None:
        self._errors.clear()
        try:
            return self._produce_batch(batch)
        except KafkaException as error:
            cause = cause_of(error)
            if cause.code() in _FENCED:
                raise FencedError(
                    "redriving stopped: another process redrives; run the command again later"
                ) from error
            if cause.fatal() or not self._transactional:
                raise KafkaFailureError(f"redriving stopped: {cause.str()}") from error
            self._abort()
            return self._errors[0] if self._errors else str(cause.str())

    def _produce_batch(self, batch: Sequence[tuple[Letter, RedriveMessage]]) -> str | None:
        if self._transactional:
            self._producer.begin_transaction()
        for letter, message in batch:
            self._produce(message)
            if not self._transactional and (error := self._flush()) is not None:
                return error
            self._produce(_notice(letter))
        if not self._transactional:
            return self._flush()
        self._producer.commit_transaction(_ANSWER_S)
        return None

    def _produce(self, message: RedriveMessage) -> None:
        self._producer.produce(
            message.topic,
            message.value,
            message.key,
            message.partition,
            headers=message.headers,
            timestamp=message.timestamp,
            on_delivery=self._on_delivery,
        )

    def _on_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._errors.append(str(error.str()))

    def _flush(self) -> str | None:
        if self._producer.flush(_ANSWER_S):
            raise KafkaFailureError(
                f"redriving stopped: the broker did not answer for {_ANSWER_S:.0f} s"
            )
        return self._errors[0] if self._errors else None

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(_ANSWER_S)
        except KafkaException as error:
            raise KafkaFailureError(f"redriving stopped: {cause_of(error).str()}") from error


def _notice(letter: Letter) -> RedriveMessage:
    """Return the message that marks a letter as redriven, in the letter's partition."""
    topic, partition, _ = letter.place
    name = letter.content.record_id.encode()
    key = (letter.content.request_id or letter.content.record_id).encode()
    return RedriveMessage(topic, partition, key, None, [(REDRIVEN_HEADER, name)], 0, "notice")
