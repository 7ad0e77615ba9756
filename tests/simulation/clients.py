"""Clients of the broker in memory, with the methods of confluent-kafka's that a service needs.

They never wait: whatever would need time is answered by what is there now. Their errors have the
codes and flags of the real client's, as `test_broker.py` observes them.
"""
# ruff: noqa: ARG002 - Timeouts are taken, as of the real clients, and nothing waits for them.

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NoReturn

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tests.simulation.broker import MemoryBroker, RefusedError
from tests.simulation.groups import GroupMetadata, Member
from tests.simulation.log import Headers, Message, Outcome, Partition, Place

Config = Mapping[str, Any]
OnPartitions = Callable[["MemoryConsumer", list[TopicPartition]], None]
OnDelivery = Callable[[KafkaError | None, Message | None], None]

_SESSION_MS: Final = 45_000
_TRANSACTION_MS: Final = 60_000
_MAX_MESSAGE_BYTES: Final = 1_000_000
_MAX_QUEUED: Final = 100_000


class MemoryConsumer:
    """A `confluent_kafka.Consumer` that reads from memory.

    It has no background thread: it is alive for its group when it polls, and only then.

    Args:
        broker: the cluster.
        config: librdkafka properties; those that mean nothing here are ignored.

    """

    def __init__(self, broker: MemoryBroker, config: Config) -> None:
        self._broker = broker
        self._group = broker.group(str(config["group.id"]))
        self._session = int(config.get("session.timeout.ms", _SESSION_MS)) / 1000
        self._instance = config.get("group.instance.id")
        self._uncommitted = config.get("isolation.level") == "read_uncommitted"
        self._tells_ends = config.get("enable.partition.eof") in (True, "true")
        self._reset = str(config.get("auto.offset.reset", "latest"))
        self._on_commit = config.get("on_commit")
        self._topics: list[str] = []
        self._callbacks: dict[str, OnPartitions | None] = {}
        self._member: Member | None = None
        self._cursors: dict[Place, _Cursor] = {}
        self._assigned_by_hand = False
        self._commits: list[Callable[[], None]] = []
        self._events: list[Message] = []
        self._rounds = 0
        self._failed = False
        self._closed = False

    # Reading

    def poll(self, timeout: float = -1) -> Message | None:
        found = self._read("consumer.poll", 1)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        return self._read("consumer.consume", num_messages)

    def _read(self, operation: str, most: int) -> list[Message]:
        self._begin(operation)
        if self._failed or self._broker.away:
            return []
        self._follow_group()
        self._answer_commits()
        cursors = list(self._cursors.values())
        if cursors:  # Nobody waits for ever because somebody else has much to read.
            self._rounds += 1
            first = self._rounds % len(cursors)
            cursors = cursors[first:] + cursors[:first]
        found, self._events = self._events[:most], self._events[most:]
        for cursor in cursors:
            if len(found) < most and not cursor.paused and not cursor.stopped:
                self._fetch(cursor, most, found)
        return found

    def _fetch(self, cursor: "_Cursor", most: int, found: list[Message]) -> None:
        partition = self._broker.partitions.get(cursor.place)
        if partition is None:
            return
        if cursor.position < 0 and not self._find_start(cursor, partition, found):
            return
        if not partition.start <= cursor.position <= partition.end:
            cursor.marks = (-1, -1)
            asked = cursor.position
            if not self._begin_anew(cursor, partition):
                found.append(_event(cursor.place, asked, KafkaError._AUTO_OFFSET_RESET))
            return
        cursor.marks = (partition.start, partition.end)
        room = most - len(found)
        cursor.position = partition.read(
            cursor.position, room, found, uncommitted=self._uncommitted
        )
        at_end = cursor.position == self._end_of(partition)
        if self._tells_ends and at_end and len(found) < most and cursor.told != cursor.position:
            cursor.told = cursor.position
            found.append(_event(cursor.place, cursor.position, KafkaError._PARTITION_EOF))

    def _find_start(self, cursor: "_Cursor", partition: Partition, found: list[Message]) -> bool:
        """Turn a name of an offset into one; return whether there is one by now."""
        if cursor.position == OFFSET_BEGINNING:
            cursor.position = partition.start
        elif cursor.position == OFFSET_END:
            cursor.position = self._end_of(partition)
        elif not self._uncommitted and self._group.is_unstable(cursor.place):
            return False
        elif cursor.place in self._group.offsets:
            cursor.position = self._group.offsets[cursor.place].offset
        elif not self._begin_anew(cursor, partition):
            found.append(_event(cursor.place, None, KafkaError._AUTO_OFFSET_RESET))
        return cursor.position >= 0

    def _begin_anew(self, cursor: "_Cursor", partition: Partition) -> bool:
        """Go where `auto.offset.reset` says; if it says nowhere, stop and return False."""
        if self._reset in ("earliest", "smallest", "beginning"):
            cursor.position = partition.start
        elif self._reset in ("latest", "largest", "end"):
            cursor.position = self._end_of(partition)
        else:
            cursor.stopped = True
        return not cursor.stopped

    def _end_of(self, partition: Partition) -> int:
        return partition.end if self._uncommitted else partition.stable

    # The group

    def subscribe(
        self,
        topics: list[str],
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        self._begin("consumer.subscribe")
        self._topics = topics
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost or on_revoke}

    def consumer_group_metadata(self) -> bytes:
        self._begin("consumer.consumer_group_metadata")
        return self._metadata().encode()

    def close(self) -> None:
        """Give back all partitions and leave; a static member stays until its session ends."""
        self._begin("consumer.close")
        member = self._member
        if member is not None and not self._failed:
            if member.owned:
                self._tell("revoke" if self._is_member(member) else "lost", sorted(member.owned))
            member.owned = set()
            if not self._broker.away:
                self._answer_commits()
                if self._instance is None:
                    self._group.leave(member)
        self._closed = True

    def _follow_group(self) -> None:
        if not self._topics:
            return
        member, now = self._member, self._broker.clock.monotonic()
        if member is not None and not self._is_member(member):
            if self._instance and self._group.member_of(self._instance) is not None:
                self._fail()
                return
            member.name = ""  # Somebody without a name, but with a generation, is refused.
            if member.owned:
                self._tell("lost", sorted(member.owned))
            member = None
        if member is None:
            member = self._group.join(self._topics, self._session, self._instance, now)
            self._member = member
        self._group.refresh()
        member.seen = now
        if member.synced != self._group.generation:
            self._take_assignment(member)

    def _take_assignment(self, member: Member) -> None:
        member.synced = self._group.generation
        given, taken = self._group.assignment(member)
        member.owned.update(given)
        if taken:
            self._tell("revoke", taken)
            member.owned.difference_update(taken)
        self._tell("assign", given)
        if taken and self._is_member(member):
            self._group.rebalance()  # It joins again, so that others get what it has given back.

    def _tell(self, what: str, places: list[Place]) -> None:
        """Call back, and do what the client does by itself if the callback does not."""
        self._assigned_by_hand = False
        callback = self._callbacks.get(what)
        partitions = [TopicPartition(*place) for place in places]
        if callback is not None:
            callback(self, partitions)
        if not self._assigned_by_hand:
            if what == "assign":
                self.incremental_assign(partitions)
            else:
                self.incremental_unassign(
                    [one for one in partitions if (one.topic, one.partition) in self._cursors]
                )

    def _is_member(self, member: Member) -> bool:
        return self._group.members.get(member.name) is member

    def _fail(self) -> None:
        """Stop working, since another member has the same instance id."""
        self._failed = True
        self._cursors.clear()
        self._events.append(
            Message((None, 0), None, error=KafkaError(KafkaError._FATAL, "Fatal error: fenced"))
        )

    def _metadata(self) -> GroupMetadata:
        member = self._member
        if member is None:
            return GroupMetadata(self._group.name, -1, "", self._instance)
        return GroupMetadata(self._group.name, member.generation, member.name, self._instance)

    # Assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._begin("consumer.assign")
        self._assigned_by_hand = True
        self._cursors = {(one.topic, one.partition): _Cursor(one) for one in partitions}

    def unassign(self) -> None:
        self.assign([])

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._begin("consumer.incremental_assign")
        self._assigned_by_hand = True
        new = {(one.topic, one.partition): _Cursor(one) for one in partitions}
        if not new.keys().isdisjoint(self._cursors):
            raise _failure(KafkaError._CONFLICT, "already part of the current assignment")
        self._cursors |= new

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        self._begin("consumer.incremental_unassign")
        self._assigned_by_hand = True
        places = [(one.topic, one.partition) for one in partitions]
        if not self._cursors.keys() >= set(places):
            raise _failure(KafkaError._INVALID_ARG, "not in the current assignment")
        for place in places:
            del self._cursors[place]

    def assignment(self) -> list[TopicPartition]:
        self._begin("consumer.assignment")
        return [TopicPartition(*place) for place in sorted(self._cursors)]

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._set_paused("consumer.pause", partitions, paused=True)

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._set_paused("consumer.resume", partitions, paused=False)

    def _set_paused(
        self, operation: str, partitions: list[TopicPartition], *, paused: bool
    ) -> None:
        self._begin(operation)
        for one in partitions:
            self._cursors[one.topic, one.partition].paused = paused

    # Offsets

    def commit(
        self, *, offsets: list[TopicPartition], asynchronous: bool = True
    ) -> list[TopicPartition] | None:
        self._begin("consumer.commit")
        if self._failed:
            raise _failure(KafkaError._FATAL, "Commit failed")
        if asynchronous:
            self._commits.append(partial(self._commit_and_answer, offsets))
            if not self._broker.away:
                self._commits[-1] = partial(self._answer, self._commit(offsets), offsets)
            return None
        self._need_broker("Commit failed")
        error = self._commit(offsets)
        self._broker.call("consumer.commit.done")
        if error is not None:
            raise KafkaException(error)
        return offsets

    def committed(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return the group's offsets; `consumer.committed.unstable` is the time to wait."""
        self._begin("consumer.committed")
        self._need_broker("Failed to get committed offsets")
        places = [(one.topic, one.partition) for one in partitions]
        if not self._uncommitted and any(map(self._group.is_unstable, places)):
            self._broker.call("consumer.committed.unstable")
            if any(map(self._group.is_unstable, places)):
                raise _failure(KafkaError._TIMED_OUT, "Failed to get committed offsets")
        return [self._committed(place) for place in places]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, *, cached: bool = False
    ) -> tuple[int, int]:
        """Return where a log begins and ends, by a question or as it was at the last fetch."""
        self._begin("consumer.get_watermark_offsets")
        place = partition.topic, partition.partition
        if cached:
            cursor = self._cursors.get(place)
            return (OFFSET_INVALID, OFFSET_INVALID) if cursor is None else cursor.marks
        self._need_broker("Failed to get watermark offsets")
        log = self._log_of(place)
        return log.start, self._end_of(log)

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        self._begin("consumer.offsets_for_times")
        self._need_broker("Failed to get offsets")
        return [
            TopicPartition(
                one.topic,
                one.partition,
                self._log_of((one.topic, one.partition)).first_since(one.offset),
            )
            for one in partitions
        ]

    def _log_of(self, place: Place) -> Partition:
        if place not in self._broker.partitions:
            raise _failure(KafkaError._UNKNOWN_PARTITION, "unknown partition")
        return self._broker.partitions[place]

    def _committed(self, place: Place) -> TopicPartition:
        position = self._group.offsets.get(place)
        if position is None:
            return TopicPartition(*place, OFFSET_INVALID)
        if position.metadata is None:
            return TopicPartition(*place, position.offset)
        return TopicPartition(*place, position.offset, position.metadata)

    def _commit(self, offsets: list[TopicPartition]) -> KafkaError | None:
        try:
            self._broker.commit(self._metadata(), offsets)
        except RefusedError as error:
            return KafkaError(error.code, "Commit failed")
        return None

    def _commit_and_answer(self, offsets: list[TopicPartition]) -> None:
        self._answer(self._commit(offsets), offsets)

    def _answer(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        if self._on_commit is not None:
            self._on_commit(error, offsets)

    def _answer_commits(self) -> None:
        commits, self._commits = self._commits, []
        for answer in commits:
            answer()

    def _begin(self, operation: str) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")
        self._broker.call(operation)

    def _need_broker(self, what: str) -> None:
        if self._broker.away:
            raise _failure(KafkaError._TIMED_OUT, what)


class _Cursor:
    """Where a consumer reads in one partition.

    Attributes:
        marks: watermarks of the last fetch.
        told: the offset at which the log was said to end, so that it is said only once.
        stopped: whether there was an error after which the client fetches no more.

    """

    __slots__ = ("marks", "paused", "place", "position", "stopped", "told")

    def __init__(self, start: TopicPartition) -> None:
        self.place = start.topic, start.partition
        self.position = start.offset
        self.marks = OFFSET_INVALID, OFFSET_INVALID
        self.told = -1
        self.paused = False
        self.stopped = False


class MemoryProducer:
    """A `confluent_kafka.Producer` that writes to memory.

    A record is written when it is produced, or, while no broker is there, when the producer is
    used again after that. Its report waits for `poll`, as the real one does.

    Args:
        broker: the cluster.
        config: librdkafka properties; those that mean nothing here are ignored.

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
        self._untold = False  # Whether a fatal error waits for `poll`.
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
            raise _failure(KafkaError._FATAL, "Unable to produce message")
        if self._id and (not self._open or self._error or self._unfinished):
            raise _failure(KafkaError._STATE, "Unable to produce message")
        content = (
            _bytes(key),
            _bytes(value),
            [(name, _bytes(text)) for name, text in headers or []],
        )
        if len(content[0] or b"") + len(content[1] or b"") > self._most_bytes:
            raise _failure(KafkaError.MSG_SIZE_TOO_LARGE, "Unable to produce message")
        if len(self) >= self._most_queued:
            raise BufferError("Local: Queue full")
        queued_at = self._broker.clock.monotonic()
        self._queue.append(_Queued(topic, partition, content, timestamp, on_delivery, queued_at))
        self._send()

    def poll(self, timeout: float = -1) -> int:
        self._call("producer.poll")
        self._send()
        if self._untold and self._error is not None:
            self._untold = False
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
        if self._untold:
            self._untold = False
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
            raise _failure(KafkaError._STATE, "Operation not valid")
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
                raise _not_in_time("Failed to flush all outstanding messages")
            self._end(Outcome.COMMITTED)

    def abort_transaction(self, timeout: float = -1) -> None:
        with self._resumable("abort_transaction"):
            self._drop_queue()
            self._serve()
            self._end(Outcome.ABORTED)
            if self._error and self._error.code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._skipped.clear()  # It begins to count anew.

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
            raise _failure(KafkaError._NOT_CONFIGURED, "The producer has no transactional.id")
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
            raise _failure(KafkaError._STATE, "Operation not valid")

    def _need_broker(self, what: str) -> None:
        if self._broker.away:
            raise _not_in_time(what)

    def _call(self, operation: str) -> None:
        """Let the broker see a call; an error that somebody has it raise counts like a real one."""
        try:
            self._broker.call(operation)
        except KafkaException as error:
            cause = error.args[0]
            if cause.fatal() or cause.txn_requires_abort():
                self._error, self._untold = cause, cause.fatal()
            raise

    def _refuse(self, error: RefusedError, what: str) -> NoReturn:
        if error.code == KafkaError.INVALID_PRODUCER_EPOCH:
            self._fence(what)
        else:
            self._must_abort(error.code, what)
        raise KafkaException(self._error)

    def _fence(self, what: str) -> None:
        self._error = KafkaError(KafkaError._FENCED, what, fatal=True)
        self._untold = True

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


def read_committed(broker: MemoryBroker, topic: str) -> list[Message]:
    """Return what a reader of committed records sees of a topic, partition by partition."""
    found: list[Message] = []
    for number in range(broker.size_of(topic)):
        partition = broker.partitions[topic, number]
        partition.read(partition.start, partition.end, found)
    return found


def _event(place: Place, offset: int | None, code: int) -> Message:
    return Message(place, offset, error=KafkaError(code))


def _failure(code: int, what: str) -> KafkaException:
    return KafkaException(KafkaError(code, what))


def _not_in_time(what: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, what, retriable=True))


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
