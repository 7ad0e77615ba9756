"""The loop: read messages, report their outcomes, and hand over batches.

The main thread consumes and runs the core; the committer's thread delivers and commits. A partition
is handled the same way at start, assignment and restart: the service reads its committed offset and
checkpoint, re-reads it from the checkpoint's start without side effects, and then it is live.
"""

from contextlib import suppress
from typing import Final, cast

from consumer.kafka.assigned_partition import ConsumedMessage
from consumer.kafka.assignment import Assignment, Telemetry
from consumer.kafka.commit_cycle import CommitCycle
from consumer.kafka.context import Context
from consumer.kafka.errors import ClientsLostError, Stopped
from consumer.kafka.membership import Membership
from consumer.kafka.message_feed import MessageFeed
from consumer.kafka.session import Session
from consumer.kafka.stall_guard import StallGuard
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.outcome_counts import totals_by_name

_POLL_S: Final = 0.1
_CHECK_EVERY_S: Final = 1.0
_GAUGES_EVERY_S: Final = 5.0  # Gauges visit all open requests (about 1,700 in each partition).
_PROGRESS_EVERY_S: Final = 60.0
_DELIVERY: Final = "delivery of a batch"


class ConsumeLoop:
    """The service with one set of Kafka clients.

    Args:
        context: settings, clock, log and stop.
        session: the objects that share the Kafka clients.
        telemetry: what reports on the service.
        guard: detects a batch or a start of the committer that hangs.

    Attributes:
        has_joined: whether the loop has asked the group for partitions.

    """

    def __init__(
        self, context: Context, session: Session, telemetry: Telemetry, guard: StallGuard
    ) -> None:
        now = context.clock.monotonic()
        self.has_joined = False
        self._context = context
        self._session = session
        self._telemetry = telemetry
        self._guard = guard
        self._assignment = Assignment(context, session, telemetry)
        self._feed = MessageFeed(context, self._assignment, telemetry.metrics)
        self._commits = CommitCycle(context, session, self._assignment, telemetry.metrics, guard)
        self._membership = Membership(
            context, session, self._assignment, self._commits, telemetry.metrics
        )
        self._next_check_s = self._next_gauges_s = now
        self._gauged_partitions = frozenset[tuple[str, int]]()
        self._next_progress_s = now + _PROGRESS_EVERY_S
        self._last_totals: dict[str, int] = {}

    @property
    def has_delivered(self) -> bool:
        """Whether a batch has been delivered."""
        return self._commits.has_delivered

    def run(self) -> None:
        """Read until the service is to stop, then commit and leave the group.

        Raises:
            ClientsLostError: the clients have to be replaced. The state is lost with them; a loop
                with new ones finds it again.
            ClusterError: a partition's checkpoint is of a newer version.
            KafkaFailureError: Kafka reports an error that ends this process.
            KafkaException: the same.

        """
        self._telemetry.health.set_membership(member=False)
        try:
            with suppress(Stopped):
                self._start()
                while not self._context.stop.requested:
                    self._run_once()
            self._shut_down()
        except BaseException as error:
            lost = isinstance(error, ClientsLostError)
            self._membership.abandon(finish_joining=lost and self.has_joined)
            raise
        finally:
            self._session.committer.stop()

    def _start(self) -> None:
        """Join the group once batches can be delivered.

        Raises:
            Stopped: the service is to stop.

        """
        self._session.committer.start()
        self._guard.begin()
        while not self._session.committer.wait_until_started(_POLL_S):
            if self._context.stop.requested:
                raise Stopped
            self._guard.check("start of the producer")
        self.has_joined = True
        self._membership.join()

    def _run_once(self) -> None:
        """Read what is there, and hand over a batch if one is due."""
        if first := self._poll(_POLL_S):
            self._feed.feed_in_time(first)
            # Asking for many at once, with a time limit, would wait for the last of them.
            messages = self._session.consumer.consume(self._feed.turn.messages, 0)
            self._feed.feed_in_time(cast("list[ConsumedMessage]", messages))
            self._assignment.report_outcomes()
        now = self._context.clock.monotonic()
        if now >= self._next_check_s:
            self._next_check_s = now + _CHECK_EVERY_S
            self._check_partitions()
        if now >= self._next_progress_s:
            self._next_progress_s = now + _PROGRESS_EVERY_S
            self._log_progress()
        self._commits.process_result()
        self._commits.commit_offsets()
        if self._session.committer.busy:
            self._guard.check(_DELIVERY)
            if self._commits.is_full:
                self._wait_for_committer()
        elif self._commits.is_full or self._commits.pace.is_due:
            if pause := self._commits.pace.pause_s:
                self._context.clock.sleep(pause)
            self._commits.hand_over()

    def _poll(self, timeout_s: float) -> list[ConsumedMessage]:
        """Return the next message, if there is one; the client runs its callbacks meanwhile."""
        message = self._session.consumer.poll(timeout_s)
        # Its stub says that headers may be a dictionary, as a producer accepts them.
        return [] if message is None else [cast("ConsumedMessage", message)]

    def _wait_for_committer(self) -> None:
        """Stop reading until the batch is delivered, and stay a member of the group meanwhile."""
        consumer, committer = self._session.consumer, self._session.committer
        if committer.wait_until_delivered(_POLL_S):
            return
        consumer.pause(consumer.assignment())
        while not committer.wait_until_delivered(_POLL_S) and not self._context.stop.requested:
            self._guard.check(_DELIVERY)
            if message := self._poll(0):
                self._feed.feed_in_time(message)
        self._assignment.report_outcomes()  # Or the next commit would pass over these messages.
        consumer.resume(consumer.assignment())

    def _check_partitions(self) -> None:
        """Report membership and gauges, and detect silence, blocked offsets, recreated topics."""
        partitions, monitor = self._assignment.partitions, self._session.monitor
        self._report_membership()
        self._update_gauges()
        monitor.close_silent(partitions)
        self._assignment.report_outcomes()
        monitor.log_reread_progress(partitions)
        monitor.log_blocked_offsets(partitions)
        for key in monitor.recreated(partitions):
            self._assignment.relocate(key, "the topic has another id")
            if key not in partitions:
                break  # The broker took its time to answer; the other partitions follow soon.

    def _report_membership(self) -> None:
        partitions = self._assignment.partitions
        self._telemetry.health.set_membership(
            member=self._membership.is_joined,
            partitions=len(partitions),
            rereading=sum(not one.core.live for one in partitions.values()),
        )
        self._membership.log_waiting()

    def _update_gauges(self) -> None:
        partitions, now = self._assignment.partitions, self._context.clock.monotonic()
        if now >= self._next_gauges_s or partitions.keys() != self._gauged_partitions:
            self._next_gauges_s = now + _GAUGES_EVERY_S
            self._gauged_partitions = frozenset(partitions)
            self._telemetry.metrics.state = self._session.monitor.state(partitions)

    def _log_progress(self) -> None:
        totals = totals_by_name(self._telemetry.metrics.totals)
        if totals != self._last_totals:
            self._last_totals = totals
            partitions = self._assignment.partitions.values()
            open_requests = sum(one.core.open_requests for one in partitions)
            self._context.log.info(LogEvent.PROGRESS, totals=totals, open_requests=open_requests)

    def _shut_down(self) -> None:
        """Deliver and commit what has gathered, and leave the group, as far as time allows."""
        settings, clock = self._context.settings, self._context.clock
        self._context.log.info(LogEvent.SHUTDOWN_REQUESTED, reason=self._context.stop.reason)
        deadline = clock.monotonic() + settings.shutdown_timeout
        self._membership.begin_shutdown(deadline)
        self._commits.deliver_rest(deadline)
        self._commits.commit_offsets()
        while self._session.offsets.pending and clock.monotonic() < deadline:
            # Serves commit callbacks. A returned message is ignored: its position is not committed.
            self._poll(_POLL_S)
            self._commits.commit_offsets()
        self._membership.leave()
