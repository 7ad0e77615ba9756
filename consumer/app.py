"""The service put together from its settings."""

import math
from contextlib import suppress
from importlib.metadata import version
from typing import Final

from confluent_kafka import Consumer, KafkaException

from consumer.core.adapters.registry import Adapters, load_adapters
from consumer.core.partition import Options, Pipeline
from consumer.core.reassembly.limits import Limits
from consumer.kafka.administrator import Administrator, Cluster, TopicNamesAsIds
from consumer.kafka.at_least_once import AtLeastOnce, ConsumerOffsetCommits
from consumer.kafka.client_config import (
    max_poll_interval_s,
    transaction_timeout_s,
    transactional_id,
)
from consumer.kafka.clients import check_properties, make_consumer, make_producer
from consumer.kafka.committer import Committer
from consumer.kafka.consume_loop import Clients, ConsumeLoop, Telemetry
from consumer.kafka.delivery import Delivery, OffsetCommits
from consumer.kafka.errors import (
    ClientsLostError,
    ClusterError,
    KafkaFailureError,
    NoBrokerError,
    Stopped,
    UnansweredError,
)
from consumer.kafka.exactly_once import ExactlyOnce, TransactionalOffsetCommits
from consumer.kafka.partition_monitor import PartitionMonitor
from consumer.kafka.partition_start import PartitionStarter
from consumer.kafka.retry import Retry
from consumer.kafka.sender import Sender
from consumer.kafka.stall_guard import StallGuard
from consumer.settings.settings import Settings, effective
from consumer.telemetry.clock import Clock, SystemClock
from consumer.telemetry.health import Health
from consumer.telemetry.http_server import serving
from consumer.telemetry.log_events import LogEvent, Logger
from consumer.telemetry.logging_setup import get_logger
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_counts import totals_by_name
from consumer.telemetry.outcome_reporter import OutcomeReporter
from consumer.telemetry.stop import Stop

_CHECK_S: Final = 10.0
# Where everything starts at once, a broker may be last: a process that waits for it reads better
# than one that is started again and again. A wrong address is told from that by time alone.
_PATIENCE_S: Final = 60.0
_ATTEMPT_S: Final = 2.0
_MAX_LOST: Final = 5  # Times in a row that clients are lost before anything was delivered.
_REBUILD_S: Final = 1.0  # Twice as long, the last call of an old producer has come back.
_MAX_REBUILD_S: Final = 30.0
_STEP_S: Final = 0.1
# Share of max.poll.interval.ms for which a callback of the group may hold up the polling.
_OF_POLL_INTERVAL: Final = 0.4


def pipeline_options(settings: Settings, fleet: str) -> Options:
    """Return the core's options."""
    return Options(
        fleet=settings.fleet or fleet,
        labels=settings.labels,
        envelope=settings.envelope,
        paths=dict(settings.paths.items()),
        response_types=settings.response_types,
        label_attributes=settings.label_attributes,
        max_stats_bytes=settings.max_stats_bytes,
        limits=Limits(
            idle_timeout_ms=round(settings.idle_timeout * 1000),
            duplicate_window_ms=round(settings.duplicate_window * 1000),
            max_reread=settings.max_reread,
            max_segment_bytes=settings.max_segment_bytes,
            max_inflated_bytes=settings.max_inflated_bytes,
        ),
        skip=frozenset(map(_place, settings.skip)),
    )


def _place(text: str) -> tuple[str, int, int]:
    topic, partition, offset = text.split(":")
    return topic, int(partition), int(offset)


def check(settings: Settings) -> str:
    """Look at the cluster as a start would; return its id.

    Raises:
        AdapterError: an adapter cannot be loaded.
        ClusterError: the cluster cannot be used as the settings say.

    """
    load_adapters()
    check_properties(settings)
    return Administrator(settings).inspect(_CHECK_S).cluster_id


def run(settings: Settings, clock: Clock | None = None) -> int:
    """Run the service until a signal or a failure ends it; return the exit code.

    Raises:
        AdapterError: an adapter cannot be loaded.
        AddressError: nobody can listen at `http_address`.
        ClusterError: the cluster cannot be used as the settings say.

    """
    clock = clock or SystemClock()
    log = get_logger()
    stop = Stop()
    stop.listen()
    adapters = load_adapters()
    check_properties(settings)
    health, metrics = Health(stop, settings.shutdown_timeout, clock, log), Metrics()
    health.register(metrics.registry)
    with serving(settings.http_address, health, metrics.registry, clock, log), health.watched():
        return _run(settings, adapters, stop, health, metrics, clock, log)


def _run(
    settings: Settings,
    adapters: Adapters,
    stop: Stop,
    health: Health,
    metrics: Metrics,
    clock: Clock,
    log: Logger,
) -> int:
    administrator = Administrator(settings)
    try:
        cluster = _reached(administrator, stop, clock, log)
    except NoBrokerError as error:  # Not a wrong setting for certain: a restart may help.
        return _stopped(log, 1, str(error), {})
    if cluster is None:
        return 0
    log.info(
        LogEvent.SERVICE_STARTED,
        version=version("acceptance-consumer"),
        cluster=cluster.cluster_id,
        adapters=[f"{adapter.engine} ({adapter.__module__})" for adapter in adapters],
        settings=effective(settings),
    )
    pipeline = Pipeline(pipeline_options(settings, cluster.cluster_id), adapters)
    runs = _Runs(settings, pipeline, administrator, cluster, stop, health, metrics, clock, log)
    return runs.to_the_end()


class _Runs:
    """The service, and what it is after its clients have been replaced."""

    def __init__(
        self,
        settings: Settings,
        pipeline: Pipeline,
        administrator: Administrator,
        cluster: Cluster,
        stop: Stop,
        health: Health,
        metrics: Metrics,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._topics = administrator if cluster.describes_topics else TopicNamesAsIds()
        self._cluster = cluster
        self._stop = stop
        self._health = health
        self._metrics = metrics
        self._clock = clock
        self._log = log
        # A transaction that is older than its timeout comes to nothing anyway. Without transactions
        # a batch waits for its broker as long as it takes, and every call comes back.
        self._patience = StallGuard(
            transaction_timeout_s(settings) if settings.transactional else math.inf,
            administrator.is_reachable,
            clock,
            log,
        )
        reporter = OutcomeReporter(
            dead_letters=settings.dead_letters,
            record_limit=cluster.record_limit,
            letter_limit=cluster.letter_limit,
            preview=settings.log_preview,
            clock=clock,
            log=log,
        )
        self._telemetry = Telemetry(reporter, metrics, health)

    def to_the_end(self) -> int:
        """Run the service until it stops for good; return the exit code."""
        code, error = 0, None
        try:
            self._run()
        except ClusterError as refusal:
            code, error = 2, str(refusal)
        except (KafkaFailureError, KafkaException, ClientsLostError) as failure:
            code, error = 1, str(failure)
        except Exception as bug:  # noqa: BLE001 - the last line says of every end why it came.
            error = " ".join([type(bug).__name__, *getattr(bug, "__notes__", ())])
            self._log.exception(
                LogEvent.SERVICE_STOPPED,
                code=1,
                error=error,
                totals=totals_by_name(self._metrics.totals),
            )
            return 1
        return _stopped(self._log, code, error, totals_by_name(self._metrics.totals))

    def _run(self) -> None:
        """Run the service, with new clients whenever the old ones are lost.

        Raises:
            ClientsLostError: again and again, and nothing was delivered in between.
            KafkaFailureError: no coordinator of transactions has answered at the first start.

        """
        lost = 0
        started = False
        begun = self._clock.monotonic()
        while not self._stop.requested:
            service = self._service()
            try:
                service.run()
            except ClientsLostError as error:
                started = started or service.started
                unanswered = isinstance(error, UnansweredError)
                waited = self._clock.monotonic() - begun
                if unanswered and not started and waited >= _PATIENCE_S:
                    raise KafkaFailureError(
                        f"no coordinator of transactions answers ({error}): look at "
                        "transaction.state.log.replication.factor and .min.isr of the brokers, or "
                        "set delivery to at_least_once"
                    ) from error
                # An outage may last: what has run once ends only for what is worse than waiting.
                lost = 1 if service.delivered or unanswered else lost + 1
                if lost > _MAX_LOST:
                    raise
                self._metrics.count_lost_clients()
                self._log.error(
                    LogEvent.CLIENTS_REBUILT, error=str(error), consecutive_failures=lost
                )
            else:
                return
            del service  # The old clients go before the new ones come.
            self._wait(min(_REBUILD_S * 2**lost, _MAX_REBUILD_S))

    def _service(self) -> ConsumeLoop:
        """Make clients and the service around them."""
        settings, clock, log = self._settings, self._clock, self._log
        offsets: OffsetCommits = (
            TransactionalOffsetCommits() if settings.transactional else ConsumerOffsetCommits(log)
        )
        consumer = make_consumer(settings, offsets.on_commit, self._on_statistics)
        finder = PartitionStarter(
            settings,
            self._pipeline,
            consumer,
            self._topics,
            self._cluster.partitions,
            max_poll_interval_s(settings) * _OF_POLL_INTERVAL,
            self._stop,
            clock,
            log,
        )
        watch = PartitionMonitor(settings.idle_timeout, consumer, self._topics, clock, log)
        grace = min(
            settings.shutdown_timeout / 2, max_poll_interval_s(settings) * _OF_POLL_INTERVAL
        )
        return ConsumeLoop(
            settings,
            Clients(consumer, Committer(self._delivery(consumer), clock), offsets, finder, watch),
            self._telemetry,
            grace,
            self._patience,
            self._stop,
            clock,
            log,
        )

    def _on_statistics(self, text: str) -> None:
        self._health.statistics(text)
        self._metrics.on_statistics(text)

    def _delivery(self, consumer: Consumer) -> Delivery:
        """Return the way to the broker."""
        settings, cluster = self._settings, self._cluster
        limit = min(cluster.record_limit, cluster.letter_limit)
        producer = make_producer(settings, limit, self._metrics.on_statistics)
        topics = {"record": settings.output_topic, "dead_letter": settings.dead_letter_topic}
        sender = Sender(producer, topics, self._log, transactional=settings.transactional)
        if not settings.transactional:
            return AtLeastOnce(sender)
        return ExactlyOnce(
            producer,
            sender,
            transactional_id(settings),
            transaction_timeout_s(settings),
            consumer.consumer_group_metadata(),
            self._clock,
            self._log,
        )

    def _wait(self, seconds: float) -> None:
        """Wait, and then for a broker: clients that are made without one may hang later."""
        deadline = self._clock.monotonic() + seconds
        while not self._stop.requested and self._clock.monotonic() < deadline:
            self._clock.sleep(_STEP_S)
        while not self._stop.requested and not self._patience.is_broker_reachable():
            self._clock.sleep(_STEP_S)


def _reached(administrator: Administrator, stop: Stop, clock: Clock, log: Logger) -> Cluster | None:
    """Look at the cluster, and wait a while for a broker; None if told to stop.

    Raises:
        ClusterError: the cluster cannot be used as the settings say.

    """
    retry = Retry(lambda: stop.requested, clock, log, pause_s=0.0, log_every_s=math.inf)
    with suppress(Stopped):
        return retry.call(
            lambda: administrator.inspect(_ATTEMPT_S), _PATIENCE_S, action="waiting for a broker"
        )
    return None


def _stopped(log: Logger, code: int, error: str | None, totals: dict[str, int]) -> int:
    """Write the last line of the log; return the exit code."""
    say = log.error if code else log.info
    say(LogEvent.SERVICE_STOPPED, code=code, error=error, totals=totals)
    return code
