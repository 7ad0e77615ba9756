"""The Kafka loop: assigned partitions are found again, read, reported and committed.

The main thread consumes and runs the core; the committer's thread delivers and commits. A partition
is handled the same way at start, assignment and restart: its committed offset and checkpoint are
read, it is read again from the checkpoint's start without side effects, and then it is live.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import Message as KafkaMessage
from msgspec import Struct

from consumer.checkpoint import Ignored, decode, encode
from consumer.clock import Clock
from consumer.committer import Batch, Committer
from consumer.logs import Event, Logger
from consumer.pipeline import ACCEPTED, Partition, Pipeline
from consumer.records import Output
from consumer.reporting import Reporter
from consumer.settings import Settings

_POLL_S: Final = 0.1
_MOST_MESSAGES: Final = 2000
_REQUEST_S: Final = 30.0
_STALE_COMMIT_S: Final = 5.0
_PARTITION_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the client's public constants
_OUT_OF_RANGE: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - are named so.
_SWITCH_INTERVAL_S: Final = 0.0005  # A busy main thread would starve the committer.

Place = tuple[str, int]  # Topic and partition.


class KafkaFailureError(Exception):
    """Kafka reports an error from which this process cannot go on."""


class Assigned(Struct):
    """One assigned partition.

    Attributes:
        core: the pipeline's state of it.
        topic_hash: hash of the topic's id.
        committed: position of the last commit, or None before the first.
        committed_at: when that was, in seconds of the monotonic clock.
        changed: whether there was an outcome since then.
        at_end_since: when its end was reached, or None if messages came since.

    """

    core: Partition
    topic_hash: int
    committed: int | None
    committed_at: float
    changed: bool = False
    at_end_since: float | None = None


class Service:
    """The running service.

    Args:
        settings: the settings.
        pipeline: the core.
        consumer: a consumer that has not subscribed yet.
        committer: delivers and commits.
        reporter: turns outcomes into messages and lines.
        topic_hashes: returns a hash of each topic's id.
        clock: for intervals.
        log: where lines go.

    """

    def __init__(
        self,
        settings: Settings,
        pipeline: Pipeline,
        consumer: Consumer,
        committer: Committer,
        reporter: Reporter,
        topic_hashes: Callable[[Iterable[str]], dict[str, int]],
        clock: Clock,
        log: Logger,
    ) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._consumer = consumer
        self._committer = committer
        self._reporter = reporter
        self._topic_hashes = topic_hashes
        self._clock = clock
        self._log = log
        self._assigned: dict[Place, Assigned] = {}
        self._outputs: list[Output] = []
        self._accepted = 0
        self._unassigned = 0
        self._last_commit = clock.monotonic()
        self._last_look = clock.monotonic()
        self._stopping = False
        self._reason = "stopped"

    def stop(self, reason: str) -> None:
        """Ask the loop to end after the batch in hand; may be called from a signal handler."""
        self._stopping = True
        self._reason = reason

    def run(self) -> None:
        """Read until told to stop, then commit and leave the group.

        Raises:
            KafkaFailureError: Kafka reports an error from which this process cannot go on.

        """
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._consumer.subscribe(
            list(self._settings.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        try:
            while not self._stopping:
                self._turn()
            self._shut_down()
        finally:
            self._committer.stop(self._settings.shutdown_timeout)

    def totals(self) -> dict[str, int]:
        """Return how often each outcome occurred, for the log."""
        totals = {"message accepted": self._accepted} if self._accepted else {}
        for (kind, outcome, reason), count in sorted(
            self._reporter.totals.items(), key=lambda item: tuple(map(str, item[0]))
        ):
            name = f"{kind} {outcome}" + (f"({reason})" if reason else "")
            totals[name] = totals.get(name, 0) + count
        if self._unassigned:
            totals["message of a partition that was taken away"] = self._unassigned
        return totals

    def _turn(self) -> None:
        """Read what is there, and commit if it is time."""
        first = self._consumer.poll(_POLL_S)
        if first is not None:
            self._take(first)
            # Asking for many at once, with a time limit, would wait for the last of them.
            for message in self._consumer.consume(_MOST_MESSAGES, 0):
                self._take(message)
            self._collect()
        now = self._clock.monotonic()
        if now - self._last_look >= 1:
            self._last_look = now
            self._close_silent(now)
        self._note_committed()
        due = now - self._last_commit >= self._settings.commit_interval
        full = len(self._outputs) >= self._settings.commit_events
        if (due or full) and not self._committer.busy:
            self._hand_over(now)
        elif full:
            self._wait_for_committer()

    def _take(self, message: KafkaMessage) -> None:
        error = message.error()
        if error is not None:
            self._take_error(message, error)
            return
        assigned = self._assigned.get((message.topic() or "", message.partition() or 0))
        if assigned is None:
            self._unassigned += 1
            return
        core = assigned.core
        if (message.offset() or 0) < core.position:
            self._unassigned += 1
            return
        assigned.at_end_since = None
        was_live = core.live
        result = core.feed(message)  # type: ignore[arg-type]
        if not core.live:
            return
        if not was_live:
            self._now_live(assigned)
        if result is ACCEPTED:
            self._accepted += 1
            return
        outputs = self._reporter.message(message, result, core.origin)  # type: ignore[arg-type]
        if outputs:
            assigned.changed = True
            self._outputs += outputs

    def _take_error(self, message: KafkaMessage, error: KafkaError) -> None:
        place = (message.topic() or "", message.partition() or 0)
        assigned = self._assigned.get(place)
        code = error.code()
        if code == _PARTITION_EOF:
            if assigned is not None:
                self._reached_end(assigned, message.offset() or 0)
        elif code == _OUT_OF_RANGE and assigned is not None:
            self._restart_out_of_range(place, assigned, error)
        elif error.fatal():
            raise KafkaFailureError(error.str())
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            self._log.error(Event.TOPIC_MISSING, topic=place[0], error=error.str())
        else:
            self._log.warning(Event.KAFKA_ERROR, topic=place[0], error=error.str())

    def _reached_end(self, assigned: Assigned, offset: int) -> None:
        """Note that a partition has nothing more to read for now."""
        assigned.at_end_since = self._clock.monotonic()
        core = assigned.core
        if not core.live and offset >= core.resumed_at:
            core.go_live()
            self._now_live(assigned)

    def _now_live(self, assigned: Assigned) -> None:
        assigned.changed = True  # Requests that ended in the stretch are told with the next commit.
        core = assigned.core
        self._log.info(
            Event.REREAD_FINISHED,
            topic=core.origin.topic,
            partition=core.origin.partition,
            offset=core.position,
            open_requests=core.open_requests,
        )

    def _collect(self) -> None:
        """Report the outcomes of requests."""
        for assigned in self._assigned.values():
            for result in assigned.core.drain():
                assigned.changed = True
                self._outputs += self._reporter.request(result, assigned.core.origin)

    def _close_silent(self, now: float) -> None:
        """Close the open requests of partitions in which nothing has come for too long."""
        for (topic, number), assigned in self._assigned.items():
            since, core = assigned.at_end_since, assigned.core
            if since is None or now - since < self._settings.idle_timeout:
                continue
            if not core.live or not core.open_requests:
                continue
            count = core.open_requests
            core.close_silent()
            self._log.info(
                Event.SILENT_PARTITION_CLOSED, topic=topic, partition=number, requests=count
            )
        self._collect()

    def _hand_over(self, now: float) -> None:
        """Give the committer what has gathered since the last time."""
        positions = self._positions(now)
        outputs, self._outputs = self._outputs, []
        self._last_commit = now
        if outputs or positions:
            self._committer.hand_over(Batch(outputs, positions))

    def _positions(self, now: float, *, everything: bool = False) -> list[TopicPartition]:
        """Return the positions to commit: of live partitions, where something has changed."""
        positions = []
        for (topic, number), assigned in self._assigned.items():
            core = assigned.core
            if not core.live or (core.position == assigned.committed and not assigned.changed):
                continue
            stale = now - assigned.committed_at >= _STALE_COMMIT_S
            if not (assigned.changed or stale or everything or assigned.committed is None):
                continue
            checkpoint = core.checkpoint(assigned.topic_hash)
            positions.append(TopicPartition(topic, number, core.position, encode(checkpoint)))
            assigned.changed = False
        return positions

    def _note_committed(self) -> None:
        for done in self._committer.committed():
            assigned = self._assigned.get((done.topic, done.partition))
            if assigned is not None:
                assigned.committed = done.offset
                assigned.committed_at = self._clock.monotonic()

    def _wait_for_committer(self) -> None:
        """Stop reading until the committer is done, and stay a member of the group meanwhile."""
        if self._committer.wait(_POLL_S):
            return
        held = self._consumer.assignment()
        self._consumer.pause(held)
        while not self._committer.wait(_POLL_S) and not self._stopping:
            if (message := self._consumer.poll(0)) is not None:
                self._take(message)
        self._consumer.resume(self._consumer.assignment())

    def _commit_rest(self, timeout: float) -> None:
        """Deliver and commit everything in hand."""
        deadline = self._clock.monotonic() + timeout
        self._collect()
        if not self._committer.wait(timeout):
            return
        self._note_committed()
        now = self._clock.monotonic()
        positions = self._positions(now, everything=True)
        outputs, self._outputs = self._outputs, []
        if outputs or positions:
            self._committer.hand_over(Batch(outputs, positions))
            self._committer.wait(deadline - now)
            self._note_committed()

    def _shut_down(self) -> None:
        self._log.info(Event.SHUTDOWN_REQUESTED, reason=self._reason)
        self._commit_rest(self._settings.shutdown_timeout / 2)
        self._consumer.close()

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        """Find the state of new partitions again, and assign them where re-reading starts."""
        if not given or self._stopping:
            return
        committed = _checked(consumer.committed(given, timeout=_REQUEST_S))
        hashes = self._topic_hashes(partition.topic for partition in given)
        starts = []
        for partition in committed:
            assigned, start = self._found(consumer, partition, hashes[partition.topic])
            self._assigned[partition.topic, partition.partition] = assigned
            starts.append(TopicPartition(partition.topic, partition.partition, start))
        consumer.incremental_assign(starts)
        self._log.info(Event.PARTITIONS_ASSIGNED, partitions=_names(given))

    def _found(
        self, consumer: Consumer, committed: TopicPartition, topic_hash: int
    ) -> tuple[Assigned, int]:
        """Return the state of a partition at its committed offset, and where to read from."""
        topic, number = committed.topic, committed.partition
        low, high = consumer.get_watermark_offsets(
            TopicPartition(topic, number), timeout=_REQUEST_S
        )
        now = self._clock.monotonic()
        if committed.offset < 0:
            offset = self._first_offset(consumer, topic, number, low, high)
            core = self._pipeline.partition(topic, number, offset)
            return Assigned(core, topic_hash, None, now), offset
        checkpoint = decode(committed.metadata or "", committed.offset, topic_hash)
        if not isinstance(checkpoint, Ignored) and committed.offset > high:
            checkpoint = Ignored("the offset lies above the end of the topic")
        if isinstance(checkpoint, Ignored):
            offset = committed.offset if low <= committed.offset <= high else low
            self._log.warning(
                Event.CHECKPOINT_IGNORED,
                topic=topic,
                partition=number,
                offset=committed.offset,
                reason=checkpoint.reason,
                starts_at=offset,
            )
            core = self._pipeline.partition(topic, number, offset)
            return Assigned(core, topic_hash, None, now), offset
        core = self._pipeline.resume(topic, number, checkpoint)
        start = max(checkpoint.start.offset, low)
        self._log.info(
            Event.REREAD_STARTED,
            topic=topic,
            partition=number,
            offset=start,
            position=committed.offset,
            open_requests=len(checkpoint.open),
            eaten=start - checkpoint.start.offset,
        )
        return Assigned(core, topic_hash, committed.offset, now), start

    def _first_offset(
        self, consumer: Consumer, topic: str, number: int, low: int, high: int
    ) -> int:
        """Return where a partition begins for which the group has no committed offset."""
        start = self._settings.start
        if start == "earliest":
            return low
        if start == "latest":
            return high
        wanted = TopicPartition(topic, number, int(start))
        [found] = _checked(consumer.offsets_for_times([wanted], timeout=_REQUEST_S))
        return found.offset if found.offset >= 0 else high

    def _restart_out_of_range(self, place: Place, assigned: Assigned, error: KafkaError) -> None:
        """Begin again at the first offset that is left, since the next one is gone."""
        topic, number = place
        low, _ = self._consumer.get_watermark_offsets(
            TopicPartition(topic, number), timeout=_REQUEST_S
        )
        self._log.error(
            Event.KAFKA_ERROR,
            topic=topic,
            partition=number,
            offset=assigned.core.position,
            error=error.str(),
            starts_at=low,
        )
        core = self._pipeline.partition(topic, number, low)
        self._assigned[place] = Assigned(core, assigned.topic_hash, None, self._clock.monotonic())
        self._consumer.seek(TopicPartition(topic, number, low if low >= 0 else OFFSET_BEGINNING))

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        """Commit what is in hand, and drop the state of partitions that are taken back."""
        self._commit_rest(self._settings.shutdown_timeout / 2)
        self._drop(taken)
        consumer.incremental_unassign(taken)
        self._log.info(Event.PARTITIONS_REVOKED, partitions=_names(taken))

    def _on_lost(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        """Drop the state of partitions that somebody else has by now."""
        self._drop(taken)
        consumer.incremental_unassign(taken)
        self._log.warning(Event.PARTITIONS_LOST, partitions=_names(taken))

    def _drop(self, taken: Iterable[TopicPartition]) -> None:
        for partition in taken:
            self._assigned.pop((partition.topic, partition.partition), None)


def _checked(partitions: list[Any]) -> list[TopicPartition]:
    for partition in partitions:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return partitions


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return [f"{partition.topic}:{partition.partition}" for partition in partitions]
