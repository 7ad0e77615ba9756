"""Exactly once: records, dead letters and positions become visible together, or not at all.

The order of the calls and what their errors mean: KIP-98 and KIP-447, and librdkafka's
documentation of its transactional producer. A transaction begins only when its batch is complete.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from consumer.kafka.batch import Batch
from consumer.kafka.errors import (
    ClientsLostError,
    ClusterError,
    FencedError,
    KafkaFailureError,
    cause_of,
    is_forbidden,
)
from consumer.kafka.retry import Retry
from consumer.kafka.sender import Sender, Sending
from consumer.telemetry.clock import Clock
from consumer.telemetry.logging_setup import LogEvent, Logger

_CALL_S: Final = 2.0  # Of one call; between calls a stop is noticed.
_AGAIN_S: Final = 0.1
_LOG_AFTER_S: Final = 10.0
_MAX_METADATA_BYTES: Final = 256 << 10  # Of one request, far below what brokers take.
_FENCED: Final = KafkaError._FENCED  # noqa: SLF001 - the client's public constants are named so.
_MESSAGE_TIMED_OUT: Final = KafkaError._MSG_TIMED_OUT  # noqa: SLF001
# What becomes of messages whose transaction comes to nothing, for a cause that the next call tells.
_CONSEQUENCES: Final = frozenset(
    {
        KafkaError._FATAL,  # noqa: SLF001
        KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
        KafkaError._PURGE_QUEUE,  # noqa: SLF001
        KafkaError._STATE,  # noqa: SLF001
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)


class ExactlyOnce(Sending):
    """Delivers each batch in one transaction.

    Args:
        producer: the only producer, with a transactional id.
        sender: produces messages with it.
        transactional_id: that id, for messages to people.
        timeout: seconds after which brokers give up a transaction (`transaction.timeout.ms`).
        group: metadata of the group, of whatever generation.
        clock: for intervals.
        log: where lines go.

    """

    def __init__(
        self,
        producer: Producer,
        sender: Sender,
        transactional_id: str,
        timeout: float,
        group: bytes,
        clock: Clock,
        log: Logger,
    ) -> None:
        super().__init__(sender)
        self._producer = producer
        self._id = transactional_id
        self._timeout = timeout
        self._group = group
        self._clock = clock
        self._log = log
        self._retry = Retry(
            lambda: sender.stopping, clock, log, pause_s=_AGAIN_S, log_after_s=_LOG_AFTER_S
        )
        self._began = 0.0
        self._began_at = 0

    def start(self) -> None:
        """Take over the transactional id: what its last owner left open is given up.

        Must be done before partitions are assigned, since their committed offsets are unstable
        until then.

        Raises:
            ClientsLostError: the producer is of no use.
            ClusterError: the brokers do not allow its transaction timeout.
            KafkaFailureError: this is not allowed.
            Stopped: told to stop meanwhile.

        """
        self._note_beginning()
        try:
            self._call(self._producer.init_transactions)
            self._release_offsets()
        except KafkaException as error:
            raise self._end_of(cause_of(error)) from error

    def _release_offsets(self) -> None:
        """Give up offsets that a broker has left open, with an aborted transaction.

        A broker that comes back from a crash skips the marks that end a transaction in partitions
        which it does not know yet ("Couldn't find leader endpoint ... can be skipped", Apache Kafka
        4.3.1). Offsets that stay open hide those of the group for ever. Records that do are left
        alone, since nobody can tell whether they were committed: to abort them might lose them.
        """
        self._producer.begin_transaction()
        offsets = [TopicPartition(self._sender.topics[0], 0, 0)]  # Whichever: it is not committed.
        try:
            self._call(partial(self._producer.send_offsets_to_transaction, offsets, self._group))
        except KafkaException as error:
            if cause_of(error).fatal():
                raise
        self._abort()

    def deliver(self, batch: Batch) -> str | None:
        """Deliver a batch, see `Delivery`; what the broker will never take is taken out of it."""
        error = self._try(batch)
        if error is None:
            self._sender.forget()
            return None
        hopeless = is_forbidden(error) or error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE
        # A broker that never heard of the transaction does not let it be aborted either.
        with suppress(ClientsLostError, KafkaFailureError) if hopeless else nullcontext():
            self._abort()
        refused = [one for one in self._sender.refused() if _is_about(one[1])]
        if hopeless and not refused:
            raise KafkaFailureError(
                f"transaction that writes to {' and '.join(self._sender.topics)}: {error.str()}"
            )
        reason = str((refused[0][1] if refused else error).str())
        self._log.warning(
            LogEvent.TRANSACTION_ABORTED,
            error=reason,
            messages=sum(len(part.outputs) for part in batch.parts),
            follows="delivered again",
        )
        if refused:
            instead = self._sender.mended(refused)
            for part in batch.parts:
                mended = (instead.get(id(output), output) for output in part.outputs)
                part.outputs[:] = [output for output in mended if output is not None]
        return reason

    def _try(self, batch: Batch) -> KafkaError | None:
        """Try to commit; return why it is to be aborted, if it is.

        Raises:
            ClientsLostError: the producer is of no use any more.
            FencedError: another process has this transactional id.

        """
        self._note_beginning()
        try:
            self._producer.begin_transaction()
            error = self._send(batch)
            if error is not None and error.code() not in _CONSEQUENCES:
                return error
            for some in _pieces(part.position for part in batch.parts):
                self._call(partial(self._producer.send_offsets_to_transaction, some, batch.group))
            if error is not None:
                return error  # Whatever the cause is, not all messages are there.
            self._call(self._producer.commit_transaction)
        except KafkaException as error:
            if cause_of(error).fatal():
                raise self._end_of(cause_of(error)) from error
            return cause_of(error)
        return None

    def _send(self, batch: Batch) -> KafkaError | None:
        """Send the messages of a batch; return why they come to nothing, or a consequence of it."""
        try:
            return self._sender.send(output for part in batch.parts for output in part.outputs)
        except KafkaException as error:
            if cause_of(error).fatal():
                raise
            return cause_of(error)

    def _abort(self) -> None:
        try:
            self._call(self._producer.abort_transaction)
            self._producer.poll(0)  # What became of its messages.
        except KafkaException as error:
            raise self._end_of(cause_of(error)) from error

    def _call(self, call: Callable[[float], object]) -> None:
        """Call, and call again while the client says that this may help.

        Raises:
            KafkaException: it fails for good.
            Stopped: told to stop.

        """
        self._retry.call(partial(call, _CALL_S), transactional_id=self._id)

    def _note_beginning(self) -> None:
        self._began, self._began_at = self._clock.monotonic(), self._clock.wall()

    def _age(self) -> float:
        """Return the seconds since the transaction began, with those of a suspended machine."""
        wall = (self._clock.wall() - self._began_at) / 1000
        return max(self._clock.monotonic() - self._began, wall)

    def _end_of(self, error: KafkaError) -> Exception:
        """Return what a fatal error means: brokers end the transactions of slow producers too."""
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return ClusterError(
                f"kafka_producer.transaction.timeout.ms is {self._timeout * 1000:.0f}: the brokers "
                "allow less, see their transaction.max.timeout.ms"
            )
        if error.code() == _FENCED and self._age() < self._timeout:
            self._log.error(LogEvent.PRODUCER_FENCED, transactional_id=self._id, error=error.str())
            return FencedError(
                f"another process uses transactional id {self._id!r}: give each instance its own, "
                "with the setting transactional_id"
            )
        if is_forbidden(error):
            return KafkaFailureError(f"transactional id {self._id!r}: {error.str()}")
        return ClientsLostError(f"producer: {error.str()}")


def _is_about(error: KafkaError) -> bool:
    """Tell whether an error is about the message that has it, or one of the same batch."""
    return error.code() not in _CONSEQUENCES and error.code() != _MESSAGE_TIMED_OUT


def _pieces(positions: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """Divide positions so that the metadata of each piece fits one request."""
    piece: list[TopicPartition] = []
    size = 0
    for position in positions:
        length = len(position.metadata or "")
        if piece and size + length > _MAX_METADATA_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(position)
        size += length
    yield piece
