"""The service put together from its settings."""

import signal
from collections.abc import Callable, Iterable
from importlib.metadata import version
from types import FrameType
from typing import Final

from confluent_kafka import KafkaException

from consumer.adapters.registry import load_adapters
from consumer.checkpoint import topic_hash
from consumer.clients import (
    Administrator,
    Cluster,
    ClusterError,
    NoBrokerError,
    make_consumer,
    make_producer,
    try_properties,
)
from consumer.clock import Clock, SystemClock
from consumer.committer import Committer, DeliveryError
from consumer.logs import Event, Logger, get_logger
from consumer.offsets import Offsets
from consumer.pipeline import Options, Pipeline
from consumer.reassembly import Limits
from consumer.reporting import Reporter
from consumer.runtime import KafkaFailureError, Service
from consumer.settings import Settings, effective

_CHECK_S: Final = 10.0
# Where everything starts at once, a broker may be last: a process that waits for it reads better
# than one that is started again and again. A wrong address is told from that by time alone.
_PATIENCE_S: Final = 60.0
_ATTEMPT_S: Final = 2.0


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
    )


def check(settings: Settings) -> str:
    """Look at the cluster as a start would; return its id.

    Raises:
        AdapterError: an adapter cannot be loaded.
        ClusterError: the cluster cannot be used as the settings say.

    """
    load_adapters()
    try_properties(settings)
    return Administrator(settings).inspect(_CHECK_S).cluster_id


def run(settings: Settings, clock: Clock | None = None) -> int:
    """Run the service until a signal or a failure ends it; return the exit code.

    Raises:
        AdapterError: an adapter cannot be loaded.
        ClusterError: the cluster cannot be used as the settings say.

    """
    clock = clock or SystemClock()
    log = get_logger()
    stop = _Stop()
    adapters = load_adapters()
    try_properties(settings)
    administrator = Administrator(settings)
    try:
        cluster = _reached(administrator, stop, clock, log)
    except NoBrokerError as error:  # Not a wrong setting for certain: a restart may help.
        return _stopped(log, 1, str(error), {})
    if cluster is None:
        return 0
    offsets = Offsets(log)
    consumer = make_consumer(settings, offsets.on_commit)
    producer = make_producer(settings, min(cluster.record_limit, cluster.letter_limit))
    topics = {"record": settings.output_topic, "dead_letter": settings.dead_letter_topic}
    reporter = Reporter(
        dead_letters=settings.dead_letters,
        record_limit=cluster.record_limit,
        letter_limit=cluster.letter_limit,
        preview=settings.log_preview,
        clock=clock,
        log=log,
    )
    service = Service(
        settings,
        Pipeline(pipeline_options(settings, cluster.cluster_id), adapters),
        consumer,
        Committer(producer, topics, log),
        offsets,
        reporter,
        administrator.topic_hashes if cluster.answers_admin else _hashes_of_names,
        clock,
        log,
    )
    stop.on_request(service.stop)
    log.info(
        Event.SERVICE_STARTED,
        version=version("acceptance-consumer"),
        cluster=cluster.cluster_id,
        adapters=[f"{adapter.engine} ({adapter.__module__})" for adapter in adapters],
        settings=effective(settings),
    )
    return _run(service, log)


class _Stop:
    """The first signal asks for a stop in good order; the second one does what signals do."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._request: Callable[[str], None] | None = None
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def on_request(self, request: Callable[[str], None]) -> None:
        """Call this when a stop is asked for, at once if it was before."""
        self._request = request
        if self.reason is not None:
            request(self.reason)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.reason = signal.Signals(number).name
        if self._request is not None:
            self._request(self.reason)
        signal.signal(number, signal.SIG_DFL)


def _reached(
    administrator: Administrator, stop: _Stop, clock: Clock, log: Logger
) -> Cluster | None:
    """Look at the cluster, and wait a while for a broker; None if told to stop.

    Raises:
        ClusterError: the cluster cannot be used as the settings say.

    """
    deadline = clock.monotonic() + _PATIENCE_S
    waiting = False
    while stop.reason is None:
        try:
            return administrator.inspect(_ATTEMPT_S)
        except NoBrokerError as error:
            if clock.monotonic() >= deadline:
                raise
            if not waiting:
                log.warning(Event.KAFKA_ERROR, error=str(error), follows="waiting for a broker")
            waiting = True
    return None


def _run(service: Service, log: Logger) -> int:
    """Run the service; say why it has stopped, and return the exit code."""
    code, error = 0, None
    try:
        service.run()
    except ClusterError as refusal:
        code, error = 2, str(refusal)
    except (KafkaFailureError, KafkaException, DeliveryError) as failure:
        code, error = 1, str(failure)
    except Exception as bug:
        name = type(bug).__name__
        log.exception(Event.SERVICE_STOPPED, code=1, error=name, totals=service.totals())
        return 1
    return _stopped(log, code, error, service.totals())


def _stopped(log: Logger, code: int, error: str | None, totals: dict[str, int]) -> int:
    """Write the last line of the log; return the exit code."""
    say = log.error if code else log.info
    say(Event.SERVICE_STOPPED, code=code, error=error, totals=totals)
    return code


def _hashes_of_names(topics: Iterable[str]) -> dict[str, int]:
    """Stand in for hashes of topic ids where nobody can tell these."""
    return {topic: topic_hash(topic) for topic in topics}
