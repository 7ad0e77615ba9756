"""The service put together from its settings, with new Kafka clients whenever they are lost."""

import gc
import math
import sys
from importlib.metadata import version
from typing import Final

from confluent_kafka import Consumer, KafkaException

from consumer.core.adapters.registry import Adapters, load_adapters
from consumer.core.partition import Pipeline
from consumer.exit_codes import FAILED, REFUSED, SUCCESS
from consumer.kafka.administrator import Administrator, Cluster, TopicNamesAsIds
from consumer.kafka.assignment import Telemetry
from consumer.kafka.at_least_once import AtLeastOnce, ConsumerOffsetCommits
from consumer.kafka.client_config import transaction_timeout_s, transactional_id
from consumer.kafka.clients import check_properties, make_consumer, make_producer
from consumer.kafka.committer import Committer
from consumer.kafka.consume_loop import ConsumeLoop
from consumer.kafka.context import Context
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
from consumer.kafka.session import Session
from consumer.kafka.stall_guard import StallGuard
from consumer.settings.core_options import pipeline_options
from consumer.settings.settings import Settings, effective
from consumer.telemetry.client_statistics import statistics_callback
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
# If service and brokers start together, the broker may be the last. Waiting is clearer in the log
# than restarting; only the deadline distinguishes this from a wrong address.
_FIRST_ANSWER_S: Final = 60.0
_ATTEMPT_S: Final = 2.0
_MAX_LOST: Final = 5  # Consecutive losses of the clients before anything was delivered.
# Doubled at the first loss: by then the last call of the old producer has returned.
_REBUILD_S: Final = 1.0
_MAX_REBUILD_S: Final = 30.0
_STEP_S: Final = 0.1
_SWITCH_INTERVAL_S: Final = 0.0005  # A busy main thread would starve the committer.
# Collect after this many new objects; with the default of 700, a batch triggers many collections.
_COLLECT_EVERY: Final = 50_000


def check(settings: Settings) -> str:
    """Check the settings and the cluster as a start would; return the cluster's id.

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
        AddressError: the process cannot listen at `http_address`.
        ClusterError: the cluster cannot be used as the settings say.

    """
    context = Context(settings, clock or SystemClock(), get_logger(), Stop())
    context.stop.handle_signals()
    _tune_interpreter()
    adapters = load_adapters()
    check_properties(settings)
    metrics = Metrics()
    health = Health(context.stop, settings.shutdown_timeout, context.clock, context.log)
    health.register(metrics.registry)
    server = serving(settings.http_address, health, metrics.registry, context.clock, context.log)
    with server, health.watchdog():
        return _serve(context, adapters, health, metrics)


def _tune_interpreter() -> None:
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.set_threshold(_COLLECT_EVERY)


def _serve(context: Context, adapters: Adapters, health: Health, metrics: Metrics) -> int:
    """Run the service once a broker answers; return the exit code.

    Raises:
        ClusterError: the cluster cannot be used as the settings say.

    """
    settings, log = context.settings, context.log
    administrator = Administrator(settings)
    try:
        cluster = _first_answer(administrator, context)
    except NoBrokerError as error:  # The setting may be right: a restart may help.
        return _log_stop(log, FAILED, str(error), {})
    except Stopped:
        log.info(LogEvent.SHUTDOWN_REQUESTED, reason=context.stop.reason)
        return _log_stop(log, SUCCESS, None, {})
    log.info(
        LogEvent.SERVICE_STARTED,
        version=version("acceptance-consumer"),
        cluster=cluster.cluster_id,
        adapters=[f"{adapter.engine} ({adapter.__module__})" for adapter in adapters],
        settings=effective(settings),
    )
    pipeline = Pipeline(pipeline_options(settings, cluster.cluster_id), adapters)
    return Service(context, pipeline, administrator, cluster, health, metrics).run()


def _first_answer(administrator: Administrator, context: Context) -> Cluster:
    """Wait up to a minute for a broker; return the cluster's description.

    Raises:
        NoBrokerError: no broker has answered.
        ClusterError: the cluster cannot be used as the settings say.
        Stopped: the service is to stop.

    """
    retry = Retry(
        lambda: context.stop.requested,
        context.clock,
        context.log,
        pause_s=0.0,
        log_every_s=math.inf,
    )
    return retry.call(
        lambda: administrator.inspect(_ATTEMPT_S), _FIRST_ANSWER_S, action="waiting for a broker"
    )


class Service:
    """The service: a loop, and another one with new clients whenever its clients are lost.

    Args:
        context: settings, clock, log and stop.
        pipeline: makes the state of partitions.
        administrator: the admin client, which outlives the other clients.
        cluster: the cluster's description.
        health: gets this member's place in the group.
        metrics: counts what happens.

    """

    def __init__(
        self,
        context: Context,
        pipeline: Pipeline,
        administrator: Administrator,
        cluster: Cluster,
        health: Health,
        metrics: Metrics,
    ) -> None:
        settings = context.settings
        self._context = context
        self._log = context.log
        self._pipeline = pipeline
        self._topic_ids = administrator if cluster.describes_topics else TopicNamesAsIds()
        self._cluster = cluster
        reporter = OutcomeReporter(
            dead_letters=settings.dead_letters,
            record_limit=cluster.record_limit,
            letter_limit=cluster.letter_limit,
            log_payloads=settings.log_preview_bytes > 0,
            clock=context.clock,
            log=context.log,
        )
        self._telemetry = Telemetry(reporter, metrics, health)
        # Brokers abort a transaction that is older than its timeout anyway. Without transactions a
        # batch waits for its broker as long as it takes, and every call comes back.
        self._guard = StallGuard(
            transaction_timeout_s(settings) if settings.transactional else math.inf,
            administrator.is_reachable,
            context.clock,
            context.log,
        )

    def run(self) -> int:
        """Run until the service stops for good; return the exit code."""
        code, error = SUCCESS, None
        try:
            self._run_loops()
        except ClusterError as refusal:
            code, error = REFUSED, str(refusal)
        except (KafkaFailureError, KafkaException, ClientsLostError) as failure:
            code, error = FAILED, str(failure)
        except Exception as bug:  # noqa: BLE001 - the last line gives the reason of every end.
            error = " ".join([type(bug).__name__, *getattr(bug, "__notes__", ())])
            self._log.exception(
                LogEvent.SERVICE_STOPPED, code=FAILED, error=error, totals=self._totals
            )
            return FAILED
        return _log_stop(self._log, code, error, self._totals)

    @property
    def _totals(self) -> dict[str, int]:
        return totals_by_name(self._telemetry.metrics.totals)

    def _run_loops(self) -> None:
        """Run a loop, and another one with new clients whenever the old ones are lost.

        Raises:
            ClientsLostError: again and again, and nothing was delivered in between.
            KafkaFailureError: no coordinator of transactions has answered at the first start.

        """
        clock, stop = self._context.clock, self._context.stop
        lost = 0
        has_joined = False
        began = clock.monotonic()
        while not stop.requested:
            loop = self._make_loop()
            try:
                loop.run()
            except ClientsLostError as error:
                has_joined = has_joined or loop.has_joined
                is_unanswered = isinstance(error, UnansweredError)
                waited = clock.monotonic() - began
                if is_unanswered and not has_joined and waited >= _FIRST_ANSWER_S:
                    raise KafkaFailureError(
                        f"no transaction coordinator answers ({error}): check "
                        "transaction.state.log.replication.factor and .min.isr of the brokers, or "
                        "set delivery to at_least_once"
                    ) from error
                # An outage may last: a service that has run waits for its end.
                lost = 1 if loop.has_delivered or is_unanswered else lost + 1
                if lost > _MAX_LOST:
                    raise
                self._telemetry.metrics.count_lost_clients()
                self._log.error(
                    LogEvent.CLIENTS_REBUILT, error=str(error), consecutive_failures=lost
                )
            else:
                return
            # Destroy the old clients, and free their partitions' state, before new ones are made.
            del loop
            self._wait(min(_REBUILD_S * 2**lost, _MAX_REBUILD_S))

    def _wait(self, seconds: float) -> None:
        """Wait, and then for a broker: clients that are made without one may hang later."""
        clock, stop = self._context.clock, self._context.stop
        deadline = clock.monotonic() + seconds
        while not stop.requested and clock.monotonic() < deadline:
            clock.sleep(_STEP_S)
        while not stop.requested and not self._guard.is_broker_reachable():
            clock.sleep(_STEP_S)

    def _make_loop(self) -> ConsumeLoop:
        """Return a loop with new clients."""
        context, settings, telemetry = self._context, self._context.settings, self._telemetry
        offsets: OffsetCommits = (
            TransactionalOffsetCommits()
            if settings.transactional
            else ConsumerOffsetCommits(context.log)
        )
        consumer = make_consumer(
            settings,
            offsets.on_commit,
            statistics_callback(telemetry.health.add_statistics, telemetry.metrics.add_statistics),
        )
        session = Session(
            consumer,
            Committer(self._make_delivery(consumer), context.clock),
            offsets,
            PartitionStarter(
                context, self._pipeline, consumer, self._topic_ids, self._cluster.partitions
            ),
            PartitionMonitor(context, consumer, self._topic_ids),
        )
        return ConsumeLoop(context, session, self._telemetry, self._guard)

    def _make_delivery(self, consumer: Consumer) -> Delivery:
        """Return the delivery that the settings ask for, with a new producer."""
        context, settings, cluster = self._context, self._context.settings, self._cluster
        limit = min(cluster.record_limit, cluster.letter_limit)
        on_statistics = statistics_callback(self._telemetry.metrics.add_statistics)
        producer = make_producer(settings, limit, on_statistics)
        topics = {"record": settings.output_topic, "dead_letter": settings.dead_letter_topic}
        sender = Sender(producer, topics, context.log, transactional=settings.transactional)
        if not settings.transactional:
            return AtLeastOnce(sender)
        return ExactlyOnce(
            producer,
            sender,
            transactional_id(settings),
            transaction_timeout_s(settings),
            consumer.consumer_group_metadata(),
            context.clock,
            context.log,
        )


def _log_stop(log: Logger, code: int, error: str | None, totals: dict[str, int]) -> int:
    """Write the last line of the log; return the exit code."""
    write = log.error if code else log.info
    write(LogEvent.SERVICE_STOPPED, code=code, error=error, totals=totals)
    return code
