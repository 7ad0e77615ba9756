"""Membership in the group: joining, assignments, revocations and leaving."""

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from consumer.kafka.assignment import Assignment
from consumer.kafka.client_config import max_callback_s, session_timeout_s
from consumer.kafka.clients import close_within, is_member
from consumer.kafka.commit_cycle import CommitCycle
from consumer.kafka.context import Context
from consumer.kafka.errors import Stopped
from consumer.kafka.session import Session
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.metrics import Metrics

_POLL_S: Final = 0.1
_CLOSE_S: Final = 10.0  # Of clients that have failed.
_LOG_WAITING_AFTER_S: Final = 10.0
_LOG_WAITING_EVERY_S: Final = 60.0


class Membership:
    """Joins the group, follows its assignments and leaves it.

    Args:
        context: settings, clock, log and stop.
        session: the objects that share the Kafka clients.
        assignment: the assigned partitions.
        commits: delivers what revoked partitions have gathered.
        metrics: counts rebalances.

    """

    def __init__(
        self,
        context: Context,
        session: Session,
        assignment: Assignment,
        commits: CommitCycle,
        metrics: Metrics,
    ) -> None:
        settings = context.settings
        self._context = context
        self._consumer = session.consumer
        self._session = session
        self._assignment = assignment
        self._commits = commits
        self._metrics = metrics
        self._max_revoke_s = min(settings.shutdown_timeout / 2, max_callback_s(settings))
        self._deadline: float | None = None
        self._failed = False
        self._log_waiting_at = context.clock.monotonic() + _LOG_WAITING_AFTER_S

    @property
    def is_joined(self) -> bool:
        """Whether the group counts this consumer as a member."""
        return is_member(self._consumer.consumer_group_metadata())

    def join(self) -> None:
        """Ask the group for partitions."""
        self._consumer.subscribe(
            list(self._context.settings.topics),
            on_assign=self.on_assign,
            on_revoke=self.on_revoke,
            on_lost=self.on_lost,
        )

    def log_waiting(self) -> None:
        """Log now and then that the group has not assigned any partition."""
        now = self._context.clock.monotonic()
        if now >= self._log_waiting_at:
            self._log_waiting_at = now + _LOG_WAITING_EVERY_S
            self._context.log.info(
                LogEvent.WAITING_FOR_PARTITIONS, group=self._context.settings.group
            )

    def begin_shutdown(self, deadline: float) -> None:
        """Let revocations use the time until a deadline (monotonic seconds) from now on."""
        self._deadline = deadline

    def leave(self) -> None:
        """Leave the group; the client calls `on_revoke` meanwhile."""
        if self._can_close():
            self._consumer.close()

    def abandon(self, *, finish_joining: bool) -> None:
        """Leave the group after a failure, without delivering anything.

        Args:
            finish_joining: whether to wait for the answer to a join. The broker ignores a leave
                before that, and the group would wait for this member until its session ends.

        """
        self._failed = True
        clock = self._context.clock
        with suppress(KafkaException):
            deadline = clock.monotonic() + session_timeout_s(self._context.settings)
            while finish_joining and not self._context.stop.requested:
                if clock.monotonic() >= deadline or self.is_joined:
                    break
                self._consumer.poll(_POLL_S)
            if self._can_close():
                close_within(self._consumer, _CLOSE_S)

    def _can_close(self) -> bool:
        """Return whether closing the consumer would come back; log where it would not."""
        busy = self._session.committer.busy
        if self._session.offsets.can_close_consumer(batch_in_flight=busy):
            return True
        self._context.log.warning(
            LogEvent.COMMIT_FAILED,
            error="the broker had not answered the commit when the service stopped",
            action="the next owner of the partitions reads from the last committed position",
        )
        return False

    # What the consumer calls while it polls or closes

    def on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Find the state of new partitions, and read each from where re-reading starts."""
        self._log_waiting_at = math.inf
        self._metrics.count_rebalance("assigned")
        if not partitions or self._context.stop.requested or self._failed:
            return
        try:
            found = self._session.starter.find(partitions)
        except Stopped:
            return  # The service stops, and the feed drops messages of unknown partitions.
        self._assignment.add(found)
        self._commits.pace.hurry()  # A first position is committed at once.
        first_positions = {
            f"{topic}:{number}": one.core.position
            for (topic, number), one in found.items()
            if one.is_new
        }
        self._context.log.info(
            LogEvent.PARTITIONS_ASSIGNED,
            partitions=_names(partitions),
            start_offsets=first_positions,
        )

    def on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Deliver and commit what has gathered, and drop the state of revoked partitions."""
        self._metrics.count_rebalance("revoked")
        if not self._failed:
            latest = self._context.clock.monotonic() + self._max_revoke_s
            self._commits.deliver_rest(self._deadline or latest)
            self._commits.commit_offsets(wait=True)
        self._assignment.remove(partitions)
        self._context.log.info(LogEvent.PARTITIONS_REVOKED, partitions=_names(partitions))

    def on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Drop the state of partitions that may have another owner already."""
        self._metrics.count_rebalance("lost")
        self._assignment.remove(partitions)
        self._log_waiting_at = self._context.clock.monotonic() + _LOG_WAITING_AFTER_S
        self._context.log.warning(LogEvent.PARTITIONS_LOST, partitions=_names(partitions))


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return [f"{partition.topic}:{partition.partition}" for partition in partitions]
