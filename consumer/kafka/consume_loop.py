"""The Kafka loop: assigned partitions are found again, read, reported and committed.

The main thread consumes and runs the core; the committer's thread delivers and commits. A partition
is handled the same way at start, assignment and restart: its committed offset and checkpoint are
read, it is read again from the checkpoint's start without side effects, and then it is live.
"""

import gc
import math
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage
from msgspec import Struct

from consumer.core.checkpoint import encode
from consumer.core.output_messages import OutputMessage
from consumer.kafka.batch import Batch, PartitionBatch, PartitionKey
from consumer.kafka.client_config import is_static_member, session_timeout_s
from consumer.kafka.clients import close_within, is_member
from consumer.kafka.committer import CommitResult, Committer
from consumer.kafka.delivery import OffsetCommits
from consumer.kafka.errors import ClientsLostError, FencedError, KafkaFailureError, Stopped
from consumer.kafka.partition_monitor import PartitionMonitor
from consumer.kafka.partition_start import AssignedPartition, PartitionStarter
from consumer.kafka.stall_guard import StallGuard
from consumer.settings.settings import Settings
from consumer.telemetry.clock import Clock
from consumer.telemetry.health import Health
from consumer.telemetry.log_events import LogEvent, Logger
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_counts import (
    EventTotal,
    OutcomeCounts,
    totals_by_name,
)
from consumer.telemetry.outcome_reporter import OutcomeReporter
from consumer.telemetry.stop import Stop
from schemas import MessageOutcome

_POLL_S: Final = 0.1
_MAX_MESSAGES: Final = 2000
_MAX_OUTPUT_BYTES: Final = 64 << 20
_PROGRESS_S: Final = 60.0
_MAX_TURN_S: Final = 10.0
_LOOK_S: Final = 1.0
_STATE_S: Final = 5.0  # Between looks at all open requests, of which there may be a million.
_CLOCK_EVERY: Final = 64  # Messages between looks at the clock.
_STALE_COMMIT_S: Final = 5.0
_MAX_ABORTS: Final = 20  # In a row; about half a minute.
_CLOSE_S: Final = 10.0  # Of clients that have failed.
_ABORT_S: Final = 0.05
_MAX_ABORT_S: Final = 2.0
_NO_LEADER_EPOCH: Final = -1
_TELL_WAITING_S: Final = 10.0
_TELL_WAITING_AGAIN_S: Final = 60.0
_PARTITION_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the client's public constants
_OUT_OF_RANGE: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - are named so.
_FATAL: Final = KafkaError._FATAL  # noqa: SLF001
_SWITCH_INTERVAL_S: Final = 0.0005  # A busy main thread would starve the committer.
_COLLECT_EVERY: Final = 50_000  # New objects; the usual 700 come several times in a batch.


class Clients(Struct, frozen=True):
    """What talks to Kafka, and is replaced as a whole when it is of no use any more.

    Attributes:
        consumer: a consumer that has not subscribed yet.
        committer: delivers records and dead letters.
        offsets: commits the positions of delivered batches.
        finder: finds the state of partitions.
        watch: looks at partitions.

    """

    consumer: Consumer
    committer: Committer
    offsets: OffsetCommits
    finder: PartitionStarter
    watch: PartitionMonitor


class Telemetry(Struct, frozen=True):
    """Who is told what the service sees; lives as long as the process.

    Attributes:
        reporter: turns outcomes into messages and lines.
        metrics: counts what happens; what is told of requests and messages, when it is committed.
        health: is told of this member's place in the group.

    """

    reporter: OutcomeReporter
    metrics: Metrics
    health: Health


class ConsumeLoop:
    """The running service.

    Args:
        settings: the settings.
        clients: what talks to Kafka.
        telemetry: is told what happens.
        grace: seconds for which the group waits when it takes partitions back.
        patience: with a batch that is on its way, and with the start of the committer.
        stop: whether the service is told to stop.
        clock: for intervals.
        log: where lines go.

    Attributes:
        started: whether partitions have been asked for.
        delivered: whether a batch has been delivered.

    """

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        telemetry: Telemetry,
        grace: float,
        patience: StallGuard,
        stop: Stop,
        clock: Clock,
        log: Logger,
    ) -> None:
        self.started = False
        self.delivered = False
        self._settings = settings
        self._consumer = clients.consumer
        self._committer = clients.committer
        self._offsets = clients.offsets
        self._finder = clients.finder
        self._watch = clients.watch
        self._reporter = telemetry.reporter
        self._metrics = telemetry.metrics
        self._health = telemetry.health
        self._grace = grace
        self._patience = patience
        self._stop = stop
        self._clock = clock
        self._log = log
        self._assigned: dict[PartitionKey, AssignedPartition] = {}
        self._outputs = 0
        self._output_bytes = 0
        self._aborts = 0
        self._next_commit = clock.monotonic()
        self._next_look = clock.monotonic()
        self._next_state = clock.monotonic()
        self._next_progress = clock.monotonic() + _PROGRESS_S
        self._progress: dict[str, int] = {}
        self._deadline: float | None = None  # Of the shutdown.
        self._failed = False
        self._tell_waiting = clock.monotonic() + _TELL_WAITING_S

    def run(self) -> None:
        """Read until told to stop, then commit and leave the group.

        Raises:
            ClientsLostError: the clients are of no use any more; the state is lost with them, and
                found again by a service with new ones.
            ClusterError: a partition's checkpoint is of a newer version.
            KafkaFailureError: Kafka reports an error from which this process cannot go on.
            KafkaException: the same.

        """
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        gc.set_threshold(_COLLECT_EVERY)
        self._health.placed(member=False)
        try:
            with suppress(Stopped):
                self._start()
                while not self._stop.requested:
                    self._turn()
            self._shut_down()
        except BaseException as error:
            self._failed = True
            with suppress(KafkaException):
                if isinstance(error, ClientsLostError) and self.started:
                    self._finish_joining()
                self._leave_group()
            raise
        finally:
            self._committer.stop()

    def _start(self) -> None:
        """Ask for partitions, once batches of them could be delivered.

        Raises:
            Stopped: told to stop meanwhile.

        """
        self._committer.start()
        self._patience.begin()
        while not self._committer.wait_until_started(_POLL_S):
            if self._stop.requested:
                raise Stopped
            self._patience.check("start of the producer")
        self.started = True
        self._consumer.subscribe(
            list(self._settings.topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    # The loop

    def _turn(self) -> None:
        """Read what is there, and commit if it is time."""
        first = self._consumer.poll(_POLL_S)
        if first is not None:
            self._take(first)
            # Asking for many at once, with a time limit, would wait for the last of them.
            self._take_in_time(self._consumer.consume(_MAX_MESSAGES, 0))
            self._collect()
        now = self._clock.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            self._look()
        if now >= self._next_progress:
            self._next_progress = now + _PROGRESS_S
            self._log_progress()
        self._settle()
        self._commit_positions()
        full = (
            self._outputs >= self._settings.commit_events or self._output_bytes >= _MAX_OUTPUT_BYTES
        )
        if self._committer.busy:
            self._patience.check("delivery of a batch")
            if full:
                self._wait_for_committer()
        elif full or now >= self._next_commit:
            if self._aborts and now < self._next_commit:
                self._clock.sleep(self._next_commit - now)
            self._hand_over()

    def _take_in_time(self, messages: list[KafkaMessage]) -> None:
        """Take messages, but not for so long that the group would give up on this member."""
        limit = self._clock.monotonic() + _MAX_TURN_S
        for first in range(0, len(messages), _CLOCK_EVERY):
            self._take_all(messages[first : first + _CLOCK_EVERY])
            if self._stop.requested:
                return  # What is not taken is not committed either.
            if self._clock.monotonic() > limit:
                self._put_back(messages[first + _CLOCK_EVERY :])
                return

    def _put_back(self, messages: list[KafkaMessage]) -> None:
        """Let messages that were not taken be read again."""
        first: dict[PartitionKey, int] = {}
        for message in messages:
            if message.error() is None:
                first.setdefault(_place_of(message), message.offset() or 0)
        for place, offset in first.items():
            if place in self._assigned:
                self._read_from(place, offset)

    def _read_from(self, place: PartitionKey, offset: int) -> None:
        """Go on at another offset; the client refuses to seek where it has stopped fetching."""
        self._consumer.incremental_unassign([TopicPartition(*place)])
        self._consumer.incremental_assign([TopicPartition(*place, offset)])

    def _log_progress(self) -> None:
        totals = totals_by_name(self._metrics.totals)
        if totals != self._progress:
            self._progress = totals
            open_requests = sum(one.core.open_requests for one in self._assigned.values())
            self._log.info(LogEvent.PROGRESS, totals=totals, open_requests=open_requests)

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

    def _take_run(self, place: PartitionKey, messages: list[KafkaMessage]) -> None:
        """Take messages of one partition, none of which is an error."""
        assigned = self._assigned.get(place)
        if assigned is None:
            self._metrics.count(EventTotal.REVOKED_MESSAGES, len(messages))
            return
        core, totals = assigned.core, assigned.counts.totals
        was_live = core.live
        taken = core.feed_all(messages)  # type: ignore[arg-type]
        if taken.repeated:
            totals[EventTotal.REFETCHED_MESSAGES.total] += taken.repeated
        if taken.repeated < len(messages):
            assigned.at_end_since, assigned.last = None, messages[-1]
        if core.live and not was_live:
            self._now_live(assigned)
        told = len(taken.not_accepted)
        for envelope, accepted in taken.accepted.items():
            totals["message", _ACCEPTED, None, (envelope,)] += accepted
            told += accepted
        if reread := len(messages) - taken.repeated - told:
            self._metrics.count(EventTotal.REREAD_MESSAGES, reread)
        assigned.others += taken.not_accepted

    def _take_error(self, message: KafkaMessage, error: KafkaError) -> None:
        place = _place_of(message)
        assigned = self._assigned.get(place)
        code = error.code()
        if code == _PARTITION_EOF:
            if assigned is not None:
                self._reached_end(assigned, message.offset() or 0)
        elif code == _OUT_OF_RANGE:
            if assigned is not None:
                self._move(place, assigned, error.str())
        elif code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise KafkaFailureError(error.str())
        elif error.fatal() or code == _FATAL:  # The client marks the latter as not fatal.
            if is_static_member(self._settings):
                raise FencedError(f"another process has this group.instance.id: {error.str()}")
            raise ClientsLostError(f"consumer: {error.str()}")
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            self._log.error(LogEvent.TOPIC_UNAVAILABLE, topic=message.topic(), error=error.str())
        else:
            self._log.warning(LogEvent.KAFKA_ERROR, topic=message.topic(), error=error.str())

    def _move(self, place: PartitionKey, assigned: AssignedPartition, error: str) -> None:
        """Go on where there is something to read, since the next offset is not in the log."""
        topic, number = place
        fields = {"topic": topic, "partition": number, "offset": assigned.core.position}
        found = self._finder.find_anew(place, assigned)
        if found is not assigned:
            assigned.core.close_all()
            self._collect()
        if found is None:
            self._drop([TopicPartition(*place)])
            self._log.error(
                LogEvent.TOPIC_RECREATED, **fields, error="it has no such partition now"
            )
            return
        if found is not assigned:
            # What is told of the old one is still to be delivered.
            found.outputs, found.counts = assigned.outputs, assigned.counts
            found.changed = True
            self._assigned[place] = found
        recreated = found.topic_hash != assigned.topic_hash
        event = LogEvent.TOPIC_RECREATED if recreated else LogEvent.KAFKA_ERROR
        self._log.error(event, **fields, error=error, start_offset=found.core.position)
        self._read_from(place, found.core.position)

    def _reached_end(self, assigned: AssignedPartition, offset: int) -> None:
        """Note that a partition has nothing more to read for now."""
        assigned.end, assigned.at_end_since = offset, self._clock.monotonic()
        core = assigned.core
        if not core.live and offset >= core.resumed_at:
            core.go_live()
            self._now_live(assigned)
        if core.live and offset > core.position:
            # Above the last message there may be marks of transactions, which would stay as lag.
            core.position = offset

    def _now_live(self, assigned: AssignedPartition) -> None:
        assigned.changed = True  # Requests that ended in the stretch are told with the next commit.
        core = assigned.core
        fields = {
            "topic": core.origin.topic,
            "partition": core.origin.partition,
            "offset": core.position,
        }
        self._log.info(LogEvent.REREAD_FINISHED, **fields, open_requests=core.open_requests)
        if core.ended_in_reread and assigned.intact:
            self._log.error(LogEvent.STATE_DIFFERS, **fields, requests=core.ended_in_reread)

    def _collect(self) -> None:
        """Report the outcomes of messages that were not accepted, and of requests.

        Those of a batch together, since a cold cache makes a letter twice as dear.
        """
        for assigned in self._assigned.values():
            counts = assigned.counts
            others, assigned.others = assigned.others, []
            letters: list[OutputMessage] = []
            for message, result in others:
                envelope = (result.envelope,)
                counts.totals["message", result.outcome, result.reason, envelope] += 1
                letters += self._reporter.message(message, result, assigned.core.origin)
            self._add(assigned, letters)
            for told in assigned.core.drain():
                counts.add_request(told, self._metrics.labels_of(told))
                self._add(assigned, self._reporter.request(told, assigned.core.origin))
                assigned.changed = True
            unsure = assigned.core.possible_repeats - assigned.possible_repeats
            if unsure:
                assigned.possible_repeats += unsure
                counts.totals[EventTotal.POSSIBLE_REPEATS.total] += unsure

    def _add(self, assigned: AssignedPartition, outputs: list[OutputMessage]) -> None:
        if outputs:
            assigned.changed = True
            assigned.outputs += outputs
            self._outputs += len(outputs)
            for output in outputs:
                self._output_bytes += len(output.value)

    def _look(self) -> None:
        """Look at what nobody would tell."""
        self._health.placed(
            member=is_member(self._consumer.consumer_group_metadata()),
            partitions=len(self._assigned),
            rereading=sum(not one.core.live for one in self._assigned.values()),
        )
        if self._clock.monotonic() >= self._tell_waiting:
            self._tell_waiting = self._clock.monotonic() + _TELL_WAITING_AGAIN_S
            self._log.info(LogEvent.WAITING_FOR_PARTITIONS, group=self._settings.group)
        if self._clock.monotonic() >= self._next_state:
            self._next_state = self._clock.monotonic() + _STATE_S
            self._metrics.state = self._watch.state(self._assigned)
        self._watch.close_silent(self._assigned)
        self._collect()
        self._watch.tell_progress(self._assigned)
        self._watch.tell_held(self._assigned)
        for place in self._watch.recreated(self._assigned):
            self._move(place, self._assigned[place], "its topic has another id")
            if place not in self._assigned:
                break  # That has taken its time; the others are looked at again soon.

    # Commits

    def _hand_over(self, *, everything: bool = False) -> bool:
        """Give the committer what has facts since the last time; False if there is nothing."""
        group_metadata = self._consumer.consumer_group_metadata()
        if not self._offsets.can_hand_over(group_metadata):
            return False  # `on_lost` is on its way.
        now = self._clock.monotonic()
        self._next_commit = now + self._settings.commit_interval
        parts = [
            self._part(place, assigned, now)
            for place, assigned in self._assigned.items()
            if _is_due(assigned, now, everything=everything)
        ]
        self._outputs = self._output_bytes = 0
        if parts:
            self._patience.begin()
            self._committer.hand_over(Batch(parts, group_metadata))
        return bool(parts)

    def _part(self, place: PartitionKey, assigned: AssignedPartition, now: float) -> PartitionBatch:
        core, last = assigned.core, assigned.last
        checkpoint = encode(core.checkpoint(assigned.topic_hash))
        epoch = None if last is None else last.leader_epoch()
        position = TopicPartition(
            *place, core.position, checkpoint, _NO_LEADER_EPOCH if epoch is None else epoch
        )
        part = PartitionBatch(position, assigned.outputs, assigned.counts)
        assigned.outputs, assigned.counts = [], OutcomeCounts()
        assigned.handed, assigned.handed_at, assigned.changed = core.position, now, False
        return part

    def _settle(self) -> None:
        """Take note of what became of the last batch."""
        settled = self._committer.pop_result()
        if settled is None:
            return
        if settled.error is not None:
            self._metrics.count_aborted_batch()
        else:
            self._metrics.count_committed_batch(
                ((part.counts, part.outputs) for part in settled.batch.partitions),
                duration_s=settled.duration_s,
                committed_at_ms=settled.ended_at_ms,
            )
        if settled.dropped:
            self._metrics.count(EventTotal.DROPPED_OUTPUTS, settled.dropped)
        if settled.error is not None:
            self._take_back(settled)
            return
        self.delivered = True
        self._aborts = 0
        self._offsets.add(part.position for part in settled.still_assigned)

    def _take_back(self, settled: CommitResult) -> None:
        """Put what a transaction has given up before what has come since; nothing is read again."""
        # What was dropped does not come again, which is progress.
        self._aborts = 1 if settled.dropped else self._aborts + 1
        if self._aborts > _MAX_ABORTS:
            raise KafkaFailureError(
                f"{self._aborts} transactions in a row came to nothing, the last one: "
                f"{settled.error}"
            )
        for part in settled.still_assigned:
            assigned = self._assigned[part.key]
            since, assigned.outputs = assigned.outputs, []
            self._add(assigned, part.outputs)
            assigned.outputs += since
            assigned.counts.merge(part.counts)
            assigned.changed = True
        pause = min(_ABORT_S * 2**self._aborts, _MAX_ABORT_S)
        self._next_commit = self._clock.monotonic() + pause

    def _commit_positions(self, *, at_once: bool = False) -> None:
        """Commit the positions of delivered batches."""
        if at_once:
            self._offsets.commit_and_wait(self._consumer)
        else:
            self._offsets.commit(self._consumer)
        for place in self._offsets.pop_failed():
            if place in self._assigned:
                self._assigned[place].handed = None

    def _wait_for_committer(self) -> None:
        """Stop reading until the committer is done, and stay a member of the group meanwhile."""
        if self._committer.wait_until_delivered(_POLL_S):
            return
        self._consumer.pause(self._consumer.assignment())
        while not self._committer.wait_until_delivered(_POLL_S) and not self._stop.requested:
            self._patience.check("delivery of a batch")
            if (message := self._consumer.poll(0)) is not None:
                self._take(message)
        self._collect()  # Or the next commit would pass over what these have brought.
        self._consumer.resume(self._consumer.assignment())

    def _deliver_rest(self, deadline: float) -> None:
        """Deliver everything in hand, if it can be done in time."""
        self._collect()
        while self._committer.wait_until_delivered(deadline - self._clock.monotonic()):
            self._settle()
            if self._aborts:  # As long as `_turn` would, since so many in a row end the service.
                pause = min(self._next_commit, deadline) - self._clock.monotonic()
                self._clock.sleep(max(pause, 0))
            if self._clock.monotonic() >= deadline or not self._hand_over(everything=True):
                break

    def _shut_down(self) -> None:
        """Deliver and commit what is in hand, and leave the group, if there is time for it."""
        self._log.info(LogEvent.SHUTDOWN_REQUESTED, reason=self._stop.reason)
        self._deadline = self._clock.monotonic() + self._settings.shutdown_timeout
        self._deliver_rest(self._deadline)
        self._commit_positions()
        while self._offsets.pending and self._clock.monotonic() < self._deadline:
            self._consumer.poll(_POLL_S)  # Answers commits; what it reads is for the next owner.
            self._commit_positions()
        self._leave_group()

    def _finish_joining(self) -> None:
        """Go through with a join that is under way: a broker hears of no leave before its answer.

        The group would wait a session longer, for a member that is not there.
        """
        deadline = self._clock.monotonic() + session_timeout_s(self._settings)
        while not self._stop.requested and self._clock.monotonic() < deadline:
            if is_member(self._consumer.consumer_group_metadata()):
                break
            self._consumer.poll(_POLL_S)

    def _leave_group(self) -> None:
        if self._offsets.can_close_consumer(batch_in_flight=self._committer.busy):
            if self._failed:
                close_within(self._consumer, _CLOSE_S)
            else:
                self._consumer.close()
            return
        # The client would wait for a commit on its way, and that for a broker.
        self._log.warning(
            LogEvent.COMMIT_FAILED,
            error="still on its way when the service stopped",
            action="read again by whoever is next",
        )

    # Events of the group

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        """Find the state of new partitions again, and assign them where re-reading starts."""
        self._tell_waiting = math.inf
        self._metrics.count_rebalance("assigned")
        if not given or self._stop.requested or self._failed:
            return
        try:
            found = self._finder.find(given)
        except Stopped:
            return  # Whatever they bring is dropped: they have no state.
        self._assigned.update(found)
        self._next_state = self._clock.monotonic()
        consumer.incremental_assign(
            [TopicPartition(*place, assigned.core.position) for place, assigned in found.items()]
        )
        self._next_commit = self._clock.monotonic()  # A first position is committed at once.
        begun = {
            f"{topic}:{number}": one.core.position
            for (topic, number), one in found.items()
            if one.handed is None
        }
        self._log.info(LogEvent.PARTITIONS_ASSIGNED, partitions=_names(given), start_offsets=begun)

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        """Commit what is in hand, and drop the state of partitions that are taken back."""
        self._metrics.count_rebalance("revoked")
        if not self._failed:
            self._deliver_rest(self._deadline or self._clock.monotonic() + self._grace)
            self._commit_positions(at_once=True)
        self._drop(taken)
        consumer.incremental_unassign(taken)
        self._log.info(LogEvent.PARTITIONS_REVOKED, partitions=_names(taken))

    def _on_lost(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        """Drop the state of partitions that somebody else has by now."""
        self._metrics.count_rebalance("lost")
        self._drop(taken)
        consumer.incremental_unassign(taken)
        self._tell_waiting = self._clock.monotonic() + _TELL_WAITING_S
        self._log.warning(LogEvent.PARTITIONS_LOST, partitions=_names(taken))

    def _drop(self, taken: list[TopicPartition]) -> None:
        self._committer.drop_revoked(taken)
        self._offsets.drop_revoked(taken)
        self._next_state = self._clock.monotonic()
        for partition in taken:
            self._assigned.pop((partition.topic, partition.partition), None)


_ACCEPTED: Final = MessageOutcome.ACCEPTED


def _is_due(assigned: AssignedPartition, now: float, *, everything: bool) -> bool:
    """Tell whether a partition takes part in the next commit; never while it is read again."""
    core = assigned.core
    if not core.live or (core.position == assigned.handed and not assigned.changed):
        return False
    stale = now - assigned.handed_at >= _STALE_COMMIT_S
    return assigned.changed or stale or everything or assigned.handed is None


def _place_of(message: KafkaMessage) -> PartitionKey:
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
