"""Exactly once: records, dead letters and positions become visible together, or not at all.

The order of the calls and the meaning of their errors: KIP-98, KIP-447, and librdkafka's
documentation of its transactional producer. A transaction begins only when its batch is complete.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from consumer.core.output_messages import OutputMessage
from consumer.kafka.batch import Batch, PartitionBatch
from consumer.kafka.clients import is_member
from consumer.kafka.delivery import DeliveryResult, OffsetCommits
from consumer.kafka.errors import (
    ClientsLostError,
    ClusterError,
    FencedError,
    KafkaFailureError,
    cause_of,
    is_forbidden,
)
from consumer.kafka.retry import Retry
from consumer.kafka.sender import Sender
from consumer.telemetry.clock import Clock
from consumer.telemetry.log_events import LogEvent, Logger

_CALL_S: Final = 2.0  # Of one call; between calls the committer notices a stop.
_PAUSE_S: Final = 0.1
_LOG_AFTER_S: Final = 10.0
_MAX_METADATA_BYTES: Final = 256 << 10  # Of one request, far below what brokers accept.
_FENCED: Final = KafkaError._FENCED  # noqa: SLF001 - the client's public constants are named so.
_MESSAGE_TIMED_OUT: Final = KafkaError._MSG_TIMED_OUT  # noqa: SLF001
# A message fails with these when its transaction has failed; the next call reports the cause.
_TRANSACTION_FAILED_EARLIER: Final = frozenset(
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


class ExactlyOnce:
    """Deliver each batch in one transaction.

    Args:
        producer: the only producer, with a transactional id.
        sender: produces messages with it.
        transactional_id: that id, for errors and log lines.
        timeout_s: `transaction.timeout.ms` in seconds.
        group_metadata: of the consumer's group, of any generation.
        clock: for intervals.
        log: where aborted transactions are logged.

    """

    def __init__(
        self,
        producer: Producer,
        sender: Sender,
        transactional_id: str,
        timeout_s: float,
        group_metadata: bytes,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._producer = producer
        self._sender = sender
        self._transactional_id = transactional_id
        self._timeout_s = timeout_s
        self._group_metadata = group_metadata
        self._clock = clock
        self._log = log
        self._retry = Retry(
            lambda: sender.stopping, clock, log, pause_s=_PAUSE_S, log_after_s=_LOG_AFTER_S
        )
        self._began_s = 0.0
        self._began_at_ms = 0

    def start(self) -> None:
        """Take over the transactional id, which aborts the open transaction of its last owner.

        The partitions' committed offsets are unstable until then, so this comes before their
        assignment.

        Raises:
            ClientsLostError: the producer has to be replaced.
            ClusterError: the brokers do not allow the transaction timeout.
            KafkaFailureError: this service may not use the transactional id.
            Stopped: `stop` was called meanwhile.

        """
        self._note_beginning()
        try:
            self._call(self._producer.init_transactions)
            self._release_offsets()
        except KafkaException as error:
            raise self._failure_of(cause_of(error)) from error

    def _release_offsets(self) -> None:
        """Begin and abort a transaction without messages: brokers release this group's offsets.

        A broker that restarts after a crash may omit the marker that ends a transaction
        ("Couldn't find leader endpoint ... can be skipped", Apache Kafka 4.3.1); until another
        transaction ends, committed offsets stay unstable. Do not abort transactions of records this
        way: their markers may be missing although they were committed.
        """
        self._producer.begin_transaction()
        offsets = [TopicPartition(self._sender.topics[0], 0, 0)]  # Any partition: not committed.
        try:
            self._call(
                partial(self._producer.send_offsets_to_transaction, offsets, self._group_metadata)
            )
        except KafkaException as error:
            if cause_of(error).fatal():
                raise
        self._abort()

    def deliver(self, batch: Batch) -> DeliveryResult:
        """Deliver a batch, see `Delivery`; after an abort, replace what the broker rejects."""
        error = self._try_to_commit(batch)
        if error is None:
            self._sender.forget_retries()
            return DeliveryResult(batch)
        hopeless = is_forbidden(error) or error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE
        # A broker that never heard of the transaction does not allow its abort either.
        with suppress(ClientsLostError, KafkaFailureError) if hopeless else nullcontext():
            self._abort()
        rejected = [one for one in self._sender.pop_rejected() if _concerns_message(one[1])]
        if hopeless and not rejected:
            raise KafkaFailureError(
                f"transaction that writes to {' and '.join(self._sender.topics)}: {error.str()}"
            )
        reason = str((rejected[0][1] if rejected else error).str())
        self._log.warning(
            LogEvent.TRANSACTION_ABORTED,
            error=reason,
            outputs=sum(len(share.outputs) for share in batch.partitions),
            action="sending again",
        )
        if not rejected:
            return DeliveryResult(batch, reason)
        replacements = self._sender.replace(rejected)
        dropped = sum(output is None for output in replacements.values())
        return DeliveryResult(_with_replacements(batch, replacements), reason, dropped)

    def idle(self) -> None:
        """Serve delivery callbacks."""
        self._sender.idle()

    def stop(self) -> None:
        """Give up the transaction."""
        self._sender.stop()

    def _try_to_commit(self, batch: Batch) -> KafkaError | None:
        """Try to commit a batch; return why its transaction has to be aborted, if it has.

        Raises:
            ClientsLostError: the producer has to be replaced.
            FencedError: another process has this transactional id.

        """
        self._note_beginning()
        try:
            self._producer.begin_transaction()
            error = self._send(batch)
            if error is not None and error.code() not in _TRANSACTION_FAILED_EARLIER:
                return error
            send_offsets = self._producer.send_offsets_to_transaction
            for positions in _chunks(share.position for share in batch.partitions):
                self._call(partial(send_offsets, positions, batch.group_metadata))
            if error is not None:
                return error  # Whatever the cause is, messages are missing.
            self._call(self._producer.commit_transaction)
        except KafkaException as error:
            if cause_of(error).fatal():
                raise self._failure_of(cause_of(error)) from error
            return cause_of(error)
        return None

    def _send(self, batch: Batch) -> KafkaError | None:
        """Send the messages of a batch; return the error of the first that failed, if any."""
        try:
            return self._sender.send(
                output for share in batch.partitions for output in share.outputs
            )
        except KafkaException as error:
            if cause_of(error).fatal():
                raise
            return cause_of(error)

    def _abort(self) -> None:
        try:
            self._call(self._producer.abort_transaction)
            self._producer.poll(0)  # Serves delivery callbacks.
        except KafkaException as error:
            raise self._failure_of(cause_of(error)) from error

    def _call(self, call: Callable[[float], object]) -> None:
        """Call, and repeat while the error is transient.

        Raises:
            KafkaException: the call failed for good.
            Stopped: `stop` was called meanwhile.

        """
        self._retry.call(partial(call, _CALL_S), transactional_id=self._transactional_id)

    def _note_beginning(self) -> None:
        self._began_s, self._began_at_ms = self._clock.monotonic(), self._clock.wall()

    def _age_s(self) -> float:
        """Return the seconds since the transaction began, also those of a suspended machine."""
        wall_s = (self._clock.wall() - self._began_at_ms) / 1000
        return max(self._clock.monotonic() - self._began_s, wall_s)

    def _failure_of(self, error: KafkaError) -> Exception:
        """Return what a fatal error means: brokers fence slow producers too."""
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return ClusterError(
                f"kafka_producer.transaction.timeout.ms is {self._timeout_s * 1000:.0f}: the "
                "brokers allow less; lower it to at most their transaction.max.timeout.ms"
            )
        if error.code() == _FENCED and self._age_s() < self._timeout_s:
            self._log.error(
                LogEvent.PRODUCER_FENCED,
                transactional_id=self._transactional_id,
                error=error.str(),
            )
            return FencedError(
                f"another process uses transactional id {self._transactional_id!r}: give each "
                "instance its own with the setting transactional_id"
            )
        if is_forbidden(error):
            return KafkaFailureError(
                f"transactional id {self._transactional_id!r}: {error.str()}; allow this service "
                "to use the id, or set transactional_id to one that it may use"
            )
        return ClientsLostError(f"producer: {error.str()}")


class TransactionalOffsetCommits(OffsetCommits):
    """Commit nothing beside the transactions, and hand over batches of members only."""

    def can_hand_over(self, group_metadata: bytes) -> bool:
        """Return whether the consumer is a member: brokers fence the commits of members only."""
        return is_member(group_metadata)


def _concerns_message(error: KafkaError) -> bool:
    """Return whether an error is due to its message, or to one of the same producer batch."""
    return error.code() not in _TRANSACTION_FAILED_EARLIER and error.code() != _MESSAGE_TIMED_OUT


def _with_replacements(batch: Batch, replacements: dict[int, OutputMessage | None]) -> Batch:
    """Return a batch with rejected outputs replaced or dropped."""
    shares = []
    for share in batch.partitions:
        outputs = (replacements.get(id(output), output) for output in share.outputs)
        kept = [output for output in outputs if output is not None]
        shares.append(PartitionBatch(share.position, kept, share.counts))
    return msgspec.structs.replace(batch, partitions=shares)


def _chunks(positions: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """Divide positions so that the metadata of each chunk fits one request."""
    chunk: list[TopicPartition] = []
    size = 0
    for position in positions:
        length = len(position.metadata or "")
        if chunk and size + length > _MAX_METADATA_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(position)
        size += length
    yield chunk
