"""The service put together from its settings."""

import signal
from collections.abc import Iterable
from importlib.metadata import version
from types import FrameType

from confluent_kafka import KafkaException

from consumer.adapters.registry import load_adapters
from consumer.clients import (
    ClusterError,
    inspect_cluster,
    make_admin,
    make_consumer,
    make_producer,
    topic_hashes,
)
from consumer.clock import Clock, SystemClock
from consumer.committer import Committer, DeliveryError
from consumer.logs import Event, get_logger
from consumer.pipeline import Options, Pipeline
from consumer.reassembly import Limits
from consumer.reporting import Reporter
from consumer.runtime import KafkaFailureError, Service
from consumer.settings import Settings, effective


def pipeline_options(settings: Settings, fleet: str) -> Options:
    """Return the core's options."""
    return Options(
        fleet=settings.fleet or fleet,
        labels=settings.labels,
        envelope=settings.envelope,
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
    )


def check(settings: Settings) -> str:
    """Look at the cluster as a start would; return its id.

    Raises:
        ClusterError: the cluster cannot be used as the settings say.

    """
    make_consumer(settings).close()
    make_producer(settings)
    return inspect_cluster(settings, make_admin(settings)).cluster_id


def run(settings: Settings, clock: Clock | None = None) -> int:
    """Run the service until a signal or a failure ends it; return the exit code.

    Raises:
        ClusterError: the cluster cannot be used as the settings say.

    """
    clock = clock or SystemClock()
    log = get_logger()
    admin = make_admin(settings)
    cluster = inspect_cluster(settings, admin)
    consumer, producer = make_consumer(settings), make_producer(settings)
    topics = {"record": settings.output_topic, "dead_letter": settings.dead_letter_topic}
    reporter = Reporter(
        dead_letters=settings.dead_letters,
        record_limit=cluster.record_limit,
        letter_limit=cluster.letter_limit,
        preview=settings.log_preview,
        clock=clock,
        log=log,
    )

    def hashes(names: Iterable[str]) -> dict[str, int]:
        return topic_hashes(admin if cluster.answers_admin else None, names)

    service = Service(
        settings,
        Pipeline(pipeline_options(settings, cluster.cluster_id), load_adapters()),
        consumer,
        Committer(producer, consumer, topics, log),
        reporter,
        hashes,
        clock,
        log,
    )
    _stop_on_signals(service)
    log.info(
        Event.SERVICE_STARTED,
        version=version("acceptance-consumer"),
        cluster=cluster.cluster_id,
        settings=effective(settings),
    )
    code, error = 0, None
    try:
        service.run()
    except (KafkaFailureError, KafkaException, DeliveryError) as failure:
        code, error = 1, str(failure)
    log.info(Event.SERVICE_STOPPED, code=code, error=error, totals=service.totals())
    return code


def _stop_on_signals(service: Service) -> None:
    """Stop in good order on the first signal; the second one does what signals do."""

    def handle(number: int, _frame: FrameType | None) -> None:
        service.stop(signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


__all__ = ["ClusterError", "check", "pipeline_options", "run"]
