"""A producer of the broker in memory, with the methods of confluent-kafka's that a service needs.

It never waits: whatever would need time is answered by what is there now. Its errors have the codes
and flags of the real client's, as `tests/simulation/test_broker.py` observes them.
"""
# ruff: noqa: ARG002 - Timeouts are accepted, as by the real client, and nothing waits for them.

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NoReturn

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.support.kafka_in_memory.broker import MemoryBroker, RefusedError
from tests.support.kafka_in_memory.errors import failure, not_in_time
from tests.support.kafka_in_memory.groups import GroupMetadata
from tests.support.kafka_in_memory.log import Headers, Message, Outcome, Place

Config = Mapping[str, Any]
OnDelivery = Callable[[KafkaError | None, Message | None], None]

_TRANSACTION_MS: Final = 60_000
_MAX_MESSAGE_BYTES: Final = 1_000_000
_MAX_QUEUED: Final = 100_000


class MemoryProducer:
    """A `confluent_kafka.Producer` that writes to memory.

    A record is written when it is produced, or, while no broker is there, when the producer is
    used again after that. Its report waits for `poll`, as the real one does.

    Args:
        broker: the cluster.
        config: librdkafka properties; the client ignores those without a meaning here.

    """

    def __init__(self, broker: MemoryBroker, config: Config) -> None:
        self._broker = broker
        self._id: str | None = config.get("transactional.id")
        self._timeout = int(config.get("transaction.timeout.ms", _TRANSACTION_MS)) / 1000
        self._most_bytes = int(config.get("message.max.bytes", _MAX_MESSAGE_BYTES))
        self._most_queued = int(config.get("queue.buffering.max.messages", _MAX_QUEUED))
        self._only_errors = config.get("delivery.report.only.error") in (True, "true")
        self._epoch: int | None = None
        self._open = False
        self._registered = False  # Whether the broker has heard of the open transaction.
        self._unfinished: str | None = None  # The call that was not answered in time.
        self._error: KafkaError | None = None  # Fatal, or to be made good by an abort.
        self._unreported = False  # Whether a fatal error waits for `poll`.
        self._queue: deque[_Queued] = deque()
        self._reports: list[Callable[[], None]] = []
        self._skipped: set[Place] = set()  # Where the client has left a gap in its numbers.
        self._turn = 0

    def __len__(self) -> int:
        return len(self._queue) + len(self._reports)

    # Messages

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: list[tuple[str, bytes | str | None]] | None = None,
    ) -> None:
        self._call("producer.produce")
        if self._dead:
            raise failure(KafkaError._FATAL, "Unable to produce message")
        if self._id and (not self._open or self._error or self._unfinished):
            raise failure(KafkaError._STATE, "Unable to produce message")
        content = (
            _bytes(key),
            _bytes(value),
            [(name, _bytes(text)) for name, text in headers or []],
        )
        if len(content[0] or b"") + len(content[1] or b"") > self._most_bytes:
            raise failure(KafkaError.MSG_SIZE_TOO_LARGE, "Unable to produce message")
        if len(self) >= self._most_queued:
            raise BufferError("Local: Queue full")
        queued_at = self._broker.clock.monotonic()
        self._queue.append(_Queued(topic, partition, content, timestamp, on_delivery, queued_at))
        self._send()

    def poll(self, timeout: float = -1) -> int:
        self._call("producer.poll")
        self._send()
        if self._unreported and self._error is not None:
            self._unreported = False
            raise KafkaException(self._error)
        return self._serve()

    def flush(self, timeout: float = -1) -> int:
        """Write and report what waits.

        Raises:
            KafkaException: there was a fatal error.
            SystemError: the same, when there were reports too. The real client trips over that.

        """
        self._call("producer.flush")
        self._send()
        reported = self._serve()
        if self._unreported:
            self._unreported = False
            if reported:
                raise SystemError("flush returned NULL without setting an exception")
            raise KafkaException(self._error)
        return len(self)

    def purge(self) -> None:
        self._call("producer.purge")
        if self._id and self._queue:
            self._must_abort(KafkaError._INCONSISTENT, "message(s) failed delivery")
        self._drop_queue()

    def _send(self) -> None:
        """Write what waits, if there is a broker."""
        while self._queue and not self._dead:
            queued = self._queue[0]
            if self._broker.away or not self._broker.size_of(queued.topic):
                # Within a transaction, no message may wait for longer than the transaction.
                if not self._id or not queued.is_late(self._broker, self._timeout):
                    return
                self._report(queued, KafkaError(KafkaError._MSG_TIMED_OUT))
                self._must_abort(KafkaError._TIMED_OUT, "1 message(s) timed out")
            else:
                self._write(queued)
            self._queue.popleft()
        if self._dead:
            self._drop_queue()

    def _write(self, queued: "_Queued") -> None:
        place = queued.topic, self._partition_of(queued)
        producer = None if self._id is None else (self._id, self._epoch or 0)
        try:
            message = self._broker.append(
                place,
                queued.content,
                queued.timestamp,
                producer,
                in_order=place not in self._skipped,
            )
        except RefusedError as error:
            self._report(queued, KafkaError(self._refused(place, error.code)))
        else:
            self._registered = True
            self._report(queued, None, message)

    def _refused(self, place: Place, code: int) -> int:
        """Note that the broker has refused a message; return the code that its report has."""
        if self._id is None:
            return code
        if code == KafkaError.INVALID_PRODUCER_EPOCH:
            self._fence("ProduceRequest failed")
            # If there was no transaction yet, already its first request was refused.
            return code if self._registered else KafkaError._PURGE_QUEUE
        self._registered = True
        self._skipped.add(place)
        self._must_abort(code, "ProduceRequest failed")
        gap = code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
        return KafkaError._PURGE_QUEUE if gap else code

    def _partition_of(self, queued: "_Queued") -> int:
        if queued.partition >= 0:
            return queued.partition
        key, size = queued.content[0], self._broker.size_of(queued.topic) or 1
        if key is not None:
            return zlib.crc32(key) % size
        self._turn += 1
        return self._turn % size

    def _report(
        self, queued: "_Queued", error: KafkaError | None, message: Message | None = None
    ) -> None:
        if queued.on_delivery is not None and (error is not None or not self._only_errors):
            self._reports.append(partial(queued.on_delivery, error, message))

    def _serve(self) -> int:
        reports, self._reports = self._reports, []
        for report in reports:
            report()
        return len(reports)

    def _drop_queue(self) -> None:
        while self._queue:
            self._report(self._queue.popleft(), KafkaError(KafkaError._PURGE_QUEUE))

    # Transactions

    def init_transactions(self, timeout: float = -1) -> None:
        with self._resumable("init_transactions"):
            self._need_broker("Timed out waiting for operation to finish")
            self._epoch = self._broker.init_producer(self._name, self._timeout)

    def begin_transaction(self) -> None:
        self._call("producer.begin_transaction")
        self._check("begin_transaction")
        if self._open or self._epoch is None:
            raise failure(KafkaError._STATE, "Operation not valid")
        self._open = True
        self._registered = False

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: bytes, timeout: float = -1
    ) -> None:
        self._call("producer.send_offsets_to_transaction")
        self._check("send_offsets_to_transaction", needs_transaction=True)
        self._send()
        if not positions:
            return
        self._need_broker("Failed to add offsets to transaction")
        try:
            self._broker.commit_in_transaction(
                self._name, self._epoch or 0, GroupMetadata.decode(group_metadata), positions
            )
        except RefusedError as error:
            self._refuse(error, "Failed to commit offsets to transaction")
        self._registered = True
        self._call("producer.send_offsets_to_transaction.done")

    def commit_transaction(self, timeout: float = -1) -> None:
        self._send()
        if not self._dead:
            self._serve()
        with self._resumable("commit_transaction"):
            if self._queue:
                raise not_in_time("Failed to flush all outstanding messages")
            self._end(Outcome.COMMITTED)

    def abort_transaction(self, timeout: float = -1) -> None:
        with self._resumable("abort_transaction"):
            self._drop_queue()
            self._serve()
            self._end(Outcome.ABORTED)
            if self._error and self._error.code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._skipped.clear()  # It restarts its count.

    def _end(self, outcome: Outcome) -> None:
        if self._registered:
            self._need_broker("Timed out waiting for operation to finish")
            try:
                self._broker.end_transaction(self._name, self._epoch or 0, outcome)
            except RefusedError as error:
                self._refuse(error, "Failed to end transaction")

    @contextmanager
    def _resumable(self, call: str) -> Iterator[None]:
        """Do what changes the state of the transaction once it is answered.

        While it is not, no other such call is accepted. The same one goes on where it was.
        """
        self._check(call, needs_transaction=call != "init_transactions")
        self._unfinished = call
        try:
            self._call(f"producer.{call}")
            yield
            self._call(f"producer.{call}.done")
        except KafkaException as error:
            if not error.args[0].retriable():
                self._unfinished = None
            raise
        self._unfinished = None
        self._error = None
        self._open = False

    # Errors

    @property
    def _name(self) -> str:
        if self._id is None:
            raise failure(KafkaError._NOT_CONFIGURED, "The producer has no transactional.id")
        return self._id

    @property
    def _dead(self) -> bool:
        return self._error is not None and self._error.fatal()

    def _check(self, call: str, *, needs_transaction: bool = False) -> None:
        """Refuse a call that is not possible in this state."""
        if self._dead:
            raise KafkaException(self._error)
        if self._unfinished not in (None, call):
            raise KafkaException(
                KafkaError(
                    KafkaError._CONFLICT,
                    f"Conflicting {self._unfinished} API call is already in progress",
                    retriable=True,
                )
            )
        if self._error is not None and call != "abort_transaction":
            raise KafkaException(self._error)
        if needs_transaction and not self._open:
            raise failure(KafkaError._STATE, "Operation not valid")

    def _need_broker(self, what: str) -> None:
        if self._broker.away:
            raise not_in_time(what)

    def _call(self, operation: str) -> None:
        """Let the broker see a call; an injected error counts like a real one."""
        try:
            self._broker.call(operation)
        except KafkaException as error:
            cause = error.args[0]
            if cause.fatal() or cause.txn_requires_abort():
                self._error, self._unreported = cause, cause.fatal()
            raise

    def _refuse(self, error: RefusedError, what: str) -> NoReturn:
        if error.code == KafkaError.INVALID_PRODUCER_EPOCH:
            self._fence(what)
        else:
            self._must_abort(error.code, what)
        raise KafkaException(self._error)

    def _fence(self, what: str) -> None:
        self._error = KafkaError(KafkaError._FENCED, what, fatal=True)
        self._unreported = True

    def _must_abort(self, code: int, what: str) -> None:
        if self._error is None:
            self._error = KafkaError(code, what, txn_requires_abort=True)


class _Queued:
    """A message that is not written yet."""

    __slots__ = ("content", "on_delivery", "partition", "queued_at", "timestamp", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        content: tuple[bytes | None, bytes | None, Headers],
        timestamp: int,
        on_delivery: OnDelivery | None,
        queued_at: float,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.content = content
        self.timestamp = timestamp
        self.on_delivery = on_delivery
        self.queued_at = queued_at

    def is_late(self, broker: MemoryBroker, timeout: float) -> bool:
        return broker.clock.monotonic() - self.queued_at > timeout


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
