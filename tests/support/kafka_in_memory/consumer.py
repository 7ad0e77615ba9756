"""A consumer of the broker in memory, with the methods of confluent-kafka's that a service needs.

It never waits: whatever would need time is answered by what is there now. Its errors have the codes
and flags of the real client's, as `tests/simulation/test_broker.py` observes them.
"""
# ruff: noqa: ARG002 - Timeouts are accepted, as by the real client, and nothing waits for them.

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tests.support.kafka_in_memory.broker import MemoryBroker, RefusedError
from tests.support.kafka_in_memory.errors import failure
from tests.support.kafka_in_memory.groups import GroupMetadata, Member
from tests.support.kafka_in_memory.log import Message, Partition, Place

Config = Mapping[str, Any]
OnPartitions = Callable[["MemoryConsumer", list[TopicPartition]], None]

_SESSION_MS: Final = 45_000


class MemoryConsumer:
    """A `confluent_kafka.Consumer` that reads from memory.

    It has no background thread: it is alive for its group when it polls, and only then.

    Args:
        broker: the cluster.
        config: librdkafka properties; the client ignores those without a meaning here.

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
        if cursors:  # A partition with many messages does not starve the others.
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
            if not self._reset_position(cursor, partition):
                found.append(_event(cursor.place, asked, KafkaError._AUTO_OFFSET_RESET))
            return
        cursor.marks = (partition.start, partition.end)
        room = most - len(found)
        cursor.position = partition.read(
            cursor.position, room, found, uncommitted=self._uncommitted
        )
        at_end = cursor.position == self._end_of(partition)
        if (
            self._tells_ends
            and at_end
            and len(found) < most
            and cursor.reported_end != cursor.position
        ):
            cursor.reported_end = cursor.position
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
        elif not self._reset_position(cursor, partition):
            found.append(_event(cursor.place, None, KafkaError._AUTO_OFFSET_RESET))
        return cursor.position >= 0

    def _reset_position(self, cursor: "_Cursor", partition: Partition) -> bool:
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
            member.name = ""  # A member with a generation but without a name is refused.
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
            raise failure(KafkaError._CONFLICT, "already part of the current assignment")
        self._cursors |= new

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        self._begin("consumer.incremental_unassign")
        self._assigned_by_hand = True
        places = [(one.topic, one.partition) for one in partitions]
        if not self._cursors.keys() >= set(places):
            raise failure(KafkaError._INVALID_ARG, "not in the current assignment")
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
            raise failure(KafkaError._FATAL, "Commit failed")
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
                raise failure(KafkaError._TIMED_OUT, "Failed to get committed offsets")
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
            raise failure(KafkaError._UNKNOWN_PARTITION, "unknown partition")
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
            raise failure(KafkaError._TIMED_OUT, what)


class _Cursor:
    """Where a consumer reads in one partition.

    Attributes:
        marks: watermarks of the last fetch.
        reported_end: the offset that was last reported as the end of the log.
        stopped: whether there was an error after which the client fetches no more.

    """

    __slots__ = ("marks", "paused", "place", "position", "reported_end", "stopped")

    def __init__(self, start: TopicPartition) -> None:
        self.place = start.topic, start.partition
        self.position = start.offset
        self.marks = OFFSET_INVALID, OFFSET_INVALID
        self.reported_end = -1
        self.paused = False
        self.stopped = False


def read_committed(broker: MemoryBroker, topic: str) -> list[Message]:
    """Return what a reader of committed records sees of a topic, partition by partition."""
    found: list[Message] = []
    for number in range(broker.size_of(topic)):
        partition = broker.partitions[topic, number]
        partition.read(partition.start, partition.end, found)
    return found


def _event(place: Place, offset: int | None, code: int) -> Message:
    return Message(place, offset, error=KafkaError(code))
