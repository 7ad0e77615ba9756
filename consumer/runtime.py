"""The Kafka loop: assigned partitions are found again, read, reported and committed.

The main thread consumes and runs the core; the committer's thread delivers and commits. A partition
is handled the same way at start, assignment and restart: its committed offset and checkpoint are
read, it is read again from the checkpoint's start without side effects, and then it is live.
"""

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import groupby
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from consumer.assignment import Assigned, Finder
from consumer.checkpoint import encode
from consumer.clock import Clock
from consumer.committer import Batch, Committer, Place
from consumer.logs import Event, Logger
from consumer.offsets import Offsets
from consumer.pipeline import Pipeline
from consumer.records import Output
from consumer.reporting import Reporter
from consumer.settings import Settings

_POLL_S: Final = 0.1
_MOST_MESSAGES: Final = 2000
_MOST_OUTPUT_BYTES: Final = 64 << 20
_LOOK_S: Final = 1.0
_PROGRESS_S: Final = 60.0
_MOST_TURN_S: Final = 10.0
_LOOK_EVERY: Final = 64  # Messages between looks at the clock.
_STALE_COMMIT_S: Final = 5.0
_PARTITION_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the client's public constants
_OUT_OF_RANGE: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - are named so.
_SWITCH_INTERVAL_S: Final = 0.0005  # A busy main thread would starve the committer.


class KafkaFailureError(Exception):
    """Kafka reports an error from which this process cannot go on."""


class Service:
    """The running service.

    Args:
        settings: the settings.
        pipeline: the core.
        consumer: a consumer that has not subscribed yet.
        committer: delivers records and dead letters.
        offsets: commits positions; the consumer answers to its `on_commit`.
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
        offsets: Offsets,
        reporter: Reporter,
        topic_hashes: Callable[[Iterable[str]], dict[str, int]],
        clock: Clock,
        log: Logger,
    ) -> None:
        self._settings = settings
        self._consumer = consumer
        self._committer = committer
        self._offsets = offsets
        self._reporter = reporter
        self._clock = clock
        self._log = log
        self._finder = Finder(
            settings, pipeline, consumer, topic_hashes, lambda: self._stopping, clock, log
        )
        self._assigned: dict[Place, Assigned] = {}
        self._outputs: list[Output] = []
        self._output_bytes = 0
        self._accepted = 0
        self._unassigned = 0
        self._repeated = 0
        self._next_commit = clock.monotonic()
        self._next_look = clock.monotonic()
        self._next_progress = clock.monotonic() + _PROGRESS_S
        self._progress: dict[str, int] = {}
        self._stopping = False
        self._reason = "stopped"
        self._deadline: float | None = None  # Of the shutdown.
        self._failed = False

    def stop(self, reason: str) -> None:
        """Ask the loop to end after the batch in hand; may be called from a signal handler."""
        self._stopping = True
        self._reason = reason

    def run(self) -> None:
        """Read until told to stop, then commit and leave the group.

        Raises:
            ClusterError: a partition's checkpoint is of a newer version.
            DeliveryError: the broker will never take a record.
            KafkaException: Kafka reports an error from which this process cannot go on.
            KafkaFailureError: the same.

        """
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        try:
            self._consumer.subscribe(
                list(self._settings.topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            while not self._stopping:
                self._turn()
            self._shut_down()
        except BaseException:
            self._failed = True
            with suppress(KafkaException):
                self._leave_group()
            raise
        finally:
            self._committer.stop()

    def totals(self) -> dict[str, int]:
        """Return how often each outcome occurred, for the log."""
        totals = {"message accepted": self._accepted} if self._accepted else {}
        for (kind, outcome, reason), count in sorted(
            self._reporter.totals.items(), key=lambda item: tuple(map(str, item[0]))
        ):
            name = f"{kind} {outcome}" + (f"({reason})" if reason else "")
            totals[name] = totals.get(name, 0) + count
        rare = {
            "message of a partition that was taken away": self._unassigned,
            "message that the client read twice": self._repeated,
            "record or dead letter too large for its topic": self._committer.dropped,
        }
        return totals | {name: count for name, count in rare.items() if count}

    # The loop

    def _turn(self) -> None:
        """Read what is there, and commit if it is time."""
        first = self._consumer.poll(_POLL_S)
        if first is not None:
            self._take(first)
            # Asking for many at once, with a time limit, would wait for the last of them.
            self._take_in_time(self._consumer.consume(_MOST_MESSAGES, 0))
            self._collect()
        now = self._clock.monotonic()
        if now >= self._next_look:
            self._next_look = now + 1
            self._close_silent(now)
        if now >= self._next_progress:
            self._next_progress = now + _PROGRESS_S
            self._log_progress()
        self._commit_delivered()
        full = (
            len(self._outputs) >= self._settings.commit_events
            or self._output_bytes >= _MOST_OUTPUT_BYTES
        )
        if (full or now >= self._next_commit) and not self._committer.busy:
            self._hand_over()
        elif full:
            self._wait_for_committer()

    def _take_in_time(self, messages: list[KafkaMessage]) -> None:
        """Take messages, but not for so long that the group would give up on this member."""
        limit = self._clock.monotonic() + _MOST_TURN_S
        for first in range(0, len(messages), _LOOK_EVERY):
            self._take_all(messages[first : first + _LOOK_EVERY])
            if self._stopping:
                return  # What is not taken is not committed either.
            if self._clock.monotonic() > limit:
                self._put_back(messages[first + _LOOK_EVERY :])
                return

    def _put_back(self, messages: list[KafkaMessage]) -> None:
        """Let messages that were not taken be read again."""
        first: dict[Place, int] = {}
        for message in messages:
            if message.error() is None:
                place = (message.topic() or "", message.partition() or 0)
                first.setdefault(place, message.offset() or 0)
        for place, offset in first.items():
            if place in self._assigned:
                self._read_from(place, offset)

    def _read_from(self, place: Place, offset: int) -> None:
        """Go on at another offset; the client refuses to seek where it has stopped fetching."""
        self._consumer.incremental_unassign([TopicPartition(*place)])
        self._consumer.incremental_assign([TopicPartition(*place, offset)])

    def _log_progress(self) -> None:
        totals = self.totals()
        if totals != self._progress:
            self._progress = totals
            open_requests = sum(one.core.open_requests for one in self._assigned.values())
            self._log.info(Event.PROGRESS, totals=totals, open_requests=open_requests)

    def _take(self, message: KafkaMessage) -> None:
        self._take_all([message])

    def _take_all(self, messages: list[KafkaMessage]) -> None:
        """Take messages, of which those of one partition mostly follow each other."""
        if _are_alike(messages):
            self._take_run(_place_of(messages[0]), messages)
            return
        for (place, good), group in groupby(messages, lambda m: (_place_of(m), m.error() is None)):
            if good:
                self._take_run(place, list(group))
                continue
            for message in group:
                if (error := message.error()) is not None:
                    self._take_error(message, error)

    def _take_run(self, place: Place, messages: list[KafkaMessage]) -> None:
        """Take messages of one partition, none of which is an error."""
        assigned = self._assigned.get(place)
        if assigned is None:
            self._unassigned += len(messages)
            return
        core = assigned.core
        was_live = core.live
        taken = core.feed_all(messages)  # type: ignore[arg-type]
        self._repeated += taken.repeated
        if taken.repeated < len(messages):
            assigned.at_end_since = None
        if core.live and not was_live:
            self._now_live(assigned)
        self._accepted += taken.accepted
        for message, result in taken.others:
            outputs = self._reporter.message(message, result, core.origin)
            if outputs:
                assigned.changed = True
                self._add(outputs)

    def _take_error(self, message: KafkaMessage, error: KafkaError) -> None:
        place = (message.topic() or "", message.partition() or 0)
        assigned = self._assigned.get(place)
        code = error.code()
        if code == _PARTITION_EOF:
            if assigned is not None:
                self._reached_end(assigned, message.offset() or 0)
        elif code == _OUT_OF_RANGE:
            if assigned is not None:
                self._move(place, assigned, error)
        elif error.fatal() or code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise KafkaFailureError(error.str())
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            self._log.error(Event.TOPIC_MISSING, topic=message.topic(), error=error.str())
        elif code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            self._log.error(Event.KAFKA_ERROR, group=self._settings.group, error=error.str())
        else:
            self._log.warning(Event.KAFKA_ERROR, topic=message.topic(), error=error.str())

    def _move(self, place: Place, assigned: Assigned, error: KafkaError) -> None:
        """Go on where there is something to read, since the next offset is not in the log."""
        before = assigned.core.position
        found = self._finder.find_anew(place, assigned)
        if found is not assigned:
            assigned.core.close_all()
            self._collect()
            self._assigned[place] = found
        topic, number = place
        start = found.core.position
        self._log.error(
            Event.KAFKA_ERROR,
            topic=topic,
            partition=number,
            offset=before,
            error=error.str(),
            starts_at=start,
        )
        self._read_from(place, start)

    def _reached_end(self, assigned: Assigned, offset: int) -> None:
        """Note that a partition has nothing more to read for now."""
        assigned.end, assigned.at_end_since = offset, self._clock.monotonic()
        core = assigned.core
        if not core.live and offset >= core.resumed_at:
            core.go_live()
            self._now_live(assigned)
        if core.live and offset > core.position:
            # Above the last message there may be marks of transactions, which would stay as lag.
            core.position = offset

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
                self._add(self._reporter.request(result, assigned.core.origin))

    def _add(self, outputs: list[Output]) -> None:
        self._outputs += outputs
        self._output_bytes += sum(len(output.value) for output in outputs)

    # Silence

    def _close_silent(self, now: float) -> None:
        """Close the open requests of partitions in which nothing has come for too long."""
        for (topic, number), assigned in self._assigned.items():
            since, core = assigned.at_end_since, assigned.core
            if since is None or now - since < self._settings.idle_timeout or not core.open_requests:
                continue
            try:
                at_end = self._is_at_end(TopicPartition(topic, number), assigned)
            except KafkaException:
                # Where no broker answers, nobody knows. The others are asked in the next round, as
                # each of these questions holds up the loop.
                assigned.at_end_since = now
                break
            if not at_end:
                assigned.at_end_since = now
                continue
            count = core.open_requests
            core.close_silent()
            self._log.info(
                Event.SILENT_PARTITION_CLOSED, topic=topic, partition=number, requests=count
            )
        self._collect()

    def _is_at_end(self, partition: TopicPartition, assigned: Assigned) -> bool:
        """Ask whether the log still ends where it was found to."""
        if not assigned.core.live:
            return False
        _, visible = self._consumer.get_watermark_offsets(partition, timeout=_LOOK_S)
        # What a transaction holds back that is still open lies above what is visible.
        _, written = self._consumer.get_watermark_offsets(partition, cached=True)
        return max(visible, written) <= assigned.end

    # Commits

    def _hand_over(self, *, everything: bool = False) -> None:
        """Give the committer what has gathered since the last time."""
        now = self._clock.monotonic()
        positions = self._positions(now, everything=everything)
        outputs, self._outputs, self._output_bytes = self._outputs, [], 0
        self._next_commit = now + self._settings.commit_interval
        if outputs or positions:
            self._committer.hand_over(Batch(outputs, positions))

    def _positions(self, now: float, *, everything: bool) -> list[TopicPartition]:
        """Return the positions to commit: of live partitions, where something has changed."""
        positions = []
        for (topic, number), assigned in self._assigned.items():
            core = assigned.core
            if not core.live or (core.position == assigned.handed and not assigned.changed):
                continue
            stale = now - assigned.handed_at >= _STALE_COMMIT_S
            if not (assigned.changed or stale or everything or assigned.handed is None):
                continue
            checkpoint = core.checkpoint(assigned.topic_hash)
            positions.append(TopicPartition(topic, number, core.position, encode(checkpoint)))
            assigned.handed, assigned.handed_at = core.position, now
            assigned.changed = False
        return positions

    def _commit_delivered(self, *, at_once: bool = False) -> None:
        """Commit the positions of what has been delivered."""
        self._offsets.add(self._committer.delivered())
        if at_once:
            self._offsets.commit_at_once(self._consumer)
        else:
            self._offsets.commit(self._consumer)
        for place in self._offsets.left():
            if place in self._assigned:
                self._assigned[place].handed = None

    def _wait_for_committer(self) -> None:
        """Stop reading until the committer is done, and stay a member of the group meanwhile."""
        if self._committer.wait(_POLL_S):
            return
        self._consumer.pause(self._consumer.assignment())
        while not self._committer.wait(_POLL_S) and not self._stopping:
            if (message := self._consumer.poll(0)) is not None:
                self._take(message)
        self._consumer.resume(self._consumer.assignment())

    def _deliver_rest(self, deadline: float) -> None:
        """Deliver everything in hand, so that it can be committed."""
        self._collect()
        if self._committer.wait(deadline - self._clock.monotonic()):
            self._hand_over(everything=True)
            self._committer.wait(deadline - self._clock.monotonic())

    def _shut_down(self) -> None:
        """Deliver and commit what is in hand, and leave the group, if there is time for it."""
        self._log.info(Event.SHUTDOWN_REQUESTED, reason=self._reason)
        self._deadline = self._clock.monotonic() + self._settings.shutdown_timeout
        self._deliver_rest(self._deadline)
        self._commit_delivered()
        while not self._offsets.settled and self._clock.monotonic() < self._deadline:
            self._consumer.poll(_POLL_S)  # Answers commits; what it reads is for the next owner.
            self._commit_delivered()
        self._leave_group()

    def _leave_group(self) -> None:
        if self._offsets.settled and not self._committer.busy:
            self._consumer.close()
            return
        # The client would wait for a commit on its way, and that for a broker.
        self._log.warning(
            Event.COMMIT_FAILED,
            error="still on its way when the service stopped",
            follows="read again by whoever is next",
        )

    # Events of the group

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        """Find the state of new partitions again, and assign them where re-reading starts."""
        if not given or self._stopping:
            return
        try:
            found = self._finder.find(given)
        except KafkaException:
            if self._stopping:
                return  # Whatever they bring is dropped: they have no state.
            raise
        self._assigned.update(found)
        consumer.incremental_assign(
            [TopicPartition(*place, assigned.core.position) for place, assigned in found.items()]
        )
        self._next_commit = self._clock.monotonic()  # A first position is committed at once.
        self._log.info(Event.PARTITIONS_ASSIGNED, partitions=_names(given))

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        """Commit what is in hand, and drop the state of partitions that are taken back."""
        if not self._failed:
            half = self._clock.monotonic() + self._settings.shutdown_timeout / 2
            self._deliver_rest(self._deadline or half)
            self._commit_delivered(at_once=True)
        self._drop(taken)
        consumer.incremental_unassign(taken)
        self._log.info(Event.PARTITIONS_REVOKED, partitions=_names(taken))

    def _on_lost(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        """Drop the state of partitions that somebody else has by now."""
        self._drop(taken)
        consumer.incremental_unassign(taken)
        self._log.warning(Event.PARTITIONS_LOST, partitions=_names(taken))

    def _drop(self, taken: list[TopicPartition]) -> None:
        self._committer.disown(taken)
        self._offsets.disown(taken)
        for partition in taken:
            self._assigned.pop((partition.topic, partition.partition), None)


def _place_of(message: KafkaMessage) -> Place:
    return message.topic() or "", message.partition() or 0


def _are_alike(messages: list[KafkaMessage]) -> bool:
    """Tell whether all messages are of one partition, and none is an error."""
    return (
        len({message.partition() for message in messages}) == 1
        and len({message.topic() for message in messages}) == 1
        and {message.error() is None for message in messages} == {True}
    )


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return [f"{partition.topic}:{partition.partition}" for partition in partitions]
