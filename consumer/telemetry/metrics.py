"""Metrics for Prometheus, as sums that the main thread adds batch by batch.

Events cause no lookup and no lock of their own. A scrape reads the sums of the last batch under a
lock.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import accumulate
from typing import Any, Final, Literal

from confluent_kafka import libversion
from msgspec import Struct
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Info,
    Metric,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.utils import floatToGoString

from consumer.core.outcomes import RequestResult
from consumer.core.output_messages import OutputMessage
from consumer.core.records import model_of
from consumer.telemetry.client_statistics import ClientName, ClientStatistics
from consumer.telemetry.metric_families import Family
from consumer.telemetry.outcome_counts import (
    DIFFERING,
    AcceptanceCounts,
    BucketCounts,
    EventTotal,
    Labels,
    OutcomeCounts,
    Total,
)

UNKNOWN: Final = "unknown"
OTHER: Final = "other"
MAX_PAIRS: Final = 200
_MAX_CHARACTERS: Final = 128
_COMMIT_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_DELAY_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200)
_NEW_FAMILY: Final[Mapping[str, Callable[..., Any]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
# These exist from the start, so that Prometheus sees the first event as an increase.
_FROM_START: Final[tuple[tuple[Family, Labels], ...]] = (
    (Family.CLIENTS_REBUILT, ()),
    *((Family.REBALANCES, (event,)) for event in ("assigned", "revoked", "lost")),
    *((Family.TRANSACTIONS, (result,)) for result in ("committed", "aborted")),
)
_FAMILY_OF_KIND: Final = {"request": Family.REQUESTS, "message": Family.MESSAGES}
_FAMILY_OF_EVENT: Final[Mapping[EventTotal, Family]] = {
    EventTotal.REREAD_MESSAGES: Family.REREAD,
    EventTotal.POSSIBLE_REPEATS: Family.POSSIBLE_REPEATS,
    EventTotal.DROPPED_OUTPUTS: Family.DROPPED,
    EventTotal.SLOW_MESSAGES: Family.SLOW,
}
_OF_ACCEPTANCE: Final[Mapping[Family, Callable[[AcceptanceCounts], int | BucketCounts]]] = {
    Family.VERIFY_STEPS: lambda counts: counts.sums.verify_steps,
    Family.ACCEPTED: lambda counts: counts.sums.accepted,
    Family.VERIFY_STEPS_WITHOUT_ACCEPTED: lambda counts: counts.sums.verify_steps_without_accepted,
    Family.DRAFTED: lambda counts: counts.sums.drafted,
    Family.MEASURED_ACCEPTED: lambda counts: counts.sums.accepted_of_drafted,
    Family.ACCEPTED_PER_STEP: lambda counts: counts.accepted_per_step,
    Family.MEAN_LENGTHS: lambda counts: counts.mean_lengths,
    Family.ACCEPTANCE_RATIOS: lambda counts: counts.acceptance_rates,
}

_Sample = tuple[Family, Labels, float | BucketCounts]


class AssignmentState(Struct, frozen=True):
    """State of the assigned partitions at one moment.

    Attributes:
        open_requests: number of open requests.
        oldest_open_age: seconds of stream time since the oldest open request began.
        lags: messages between position and end by topic and partition, where the end is known.
        assigned: number of assigned partitions.
        rereading: how many of them the service still re-reads.
        reread_remaining: messages that the service still has to re-read.

    """

    open_requests: int = 0
    oldest_open_age: float = 0.0
    lags: Mapping[tuple[str, int], int] = {}
    assigned: int = 0
    rereading: int = 0
    reread_remaining: int = 0

    def samples(self) -> Iterator[_Sample]:
        """Return the samples of this state."""
        yield Family.OPEN_REQUESTS, (), self.open_requests
        yield Family.OLDEST_OPEN, (), self.oldest_open_age
        yield Family.ASSIGNED, (), self.assigned
        yield Family.REREADING, (), self.rereading
        yield Family.REREAD_REMAINING, (), self.reread_remaining
        for (topic, partition), lag in self.lags.items():
            yield Family.LAG, (topic, str(partition)), lag


class Metrics:
    """Counts for the whole life of the process, which outlive its Kafka clients.

    Attributes:
        registry: the registry to scrape.
        state: the main thread replaces it as a whole.

    """

    def __init__(self) -> None:
        self.state = AssignmentState()
        self._counts = OutcomeCounts()
        self._counters: Counter[tuple[Family, Labels]] = Counter(dict.fromkeys(_FROM_START, 0))
        self._commits = BucketCounts(_COMMIT_BOUNDS)
        self._delays = BucketCounts(_DELAY_BOUNDS)
        self._statistics: dict[ClientName, ClientStatistics] = {}
        self._lock = threading.Lock()  # Guards all counts.
        self._labels: dict[tuple[str, str], Labels] = {}
        self._pairs = 0
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        build = Info("acceptance_build", "Versions of the service.", registry=self.registry)
        build.info({"version": version("acceptance-consumer"), "librdkafka": libversion()[0]})
        self.registry.register(self)

    @property
    def totals(self) -> Counter[Total]:
        """How often each outcome occurred; for the main thread, which alone adds to it."""
        return self._counts.totals

    def labels_of(self, result: RequestResult) -> Labels:
        """Return engine and model of a request as labels, of which there is a bounded number.

        Only a published record adds a model, up to a maximum; further models are `other`.
        """
        record = result.record
        if record is not None:
            engine, model = record.engine, record.model
        else:
            engine = result.claims[0] if len(result.claims) == 1 else UNKNOWN
            model = model_of(result.response)
        if model is None:
            return engine, UNKNOWN
        known = self._labels.get((engine, model))
        if known is not None:
            return known
        if record is None or self._pairs == MAX_PAIRS:
            return engine, OTHER
        self._pairs += 1
        labels = self._labels[engine, model] = engine, _printable(model)
        self._labels.setdefault((UNKNOWN, model), (UNKNOWN, labels[1]))
        return labels

    def count(self, event: EventTotal, times: int) -> None:
        """Count an event that is not part of a batch."""
        with self._lock:
            self._counts.totals[event.total] += times

    def count_rebalance(self, event: Literal["assigned", "revoked", "lost"]) -> None:
        """Count a change of the assignment."""
        self._increase(Family.REBALANCES, event)

    def count_lost_clients(self) -> None:
        """Count the loss of the Kafka clients, and forget the state that went with them."""
        self._increase(Family.CLIENTS_REBUILT)
        self.state = AssignmentState()
        with self._lock:
            self._statistics.clear()

    def count_aborted_batch(self) -> None:
        """Count a batch whose transaction was aborted."""
        self._increase(Family.TRANSACTIONS, "aborted")

    def count_committed_batch(
        self,
        parts: Iterable[tuple[OutcomeCounts, Iterable[OutputMessage]]],
        *,
        duration_s: float,
        committed_at_ms: int,
    ) -> None:
        """Count a batch that was committed.

        Args:
            parts: outcomes and output messages of each partition.
            duration_s: seconds from the hand-over of the batch to the broker's answer.
            committed_at_ms: time of that answer, in milliseconds since 1970.

        """
        self._increase(Family.TRANSACTIONS, "committed")
        with self._lock:
            self._commits.observe(duration_s)
            for counts, outputs in parts:
                self._counts.merge(counts)
                for output in outputs:
                    if output.output == "dead_letter":
                        labels = output.kind, output.reason or output.outcome
                        self._counters[Family.DEAD_LETTERS, labels] += 1
                    elif output.timestamp:
                        self._delays.observe(max(committed_at_ms - output.timestamp, 0) / 1000)

    def add_statistics(self, statistics: ClientStatistics) -> None:
        """Add the statistics of a Kafka client; called inside its polls."""
        client = statistics.type
        with self._lock:
            before = _traffic(self._statistics.get(client))
            for broker, (sent, received) in _traffic(statistics).items():
                sent_before, received_before = before.get(broker, (0, 0))
                self._counters[Family.SENT_BYTES, (client,)] += _growth(sent, sent_before)
                self._counters[Family.RECEIVED_BYTES, (client,)] += _growth(
                    received, received_before
                )
            self._statistics[client] = statistics

    # The collector, called by the thread of a scrape

    def describe(self) -> Iterable[Metric]:
        """Return all metrics without values."""
        return map(_empty, Family)

    def collect(self) -> Iterable[Metric]:
        """Return all metrics."""
        state = self.state
        families = {family: _empty(family) for family in Family}
        with self._lock:
            for family, labels, value in (*self._samples(), *state.samples()):
                if isinstance(value, BucketCounts):
                    families[family].add_metric(labels, _buckets(value), value.sum)
                else:
                    families[family].add_metric(labels, value)
        return families.values()

    def _samples(self) -> Iterator[_Sample]:
        totals = self._counts.totals
        for (kind, outcome, reason, labels), count in totals.items():
            if kind == DIFFERING:
                yield Family.DIFFERING, (*labels, outcome), count
            elif family := _FAMILY_OF_KIND.get(kind):
                yield family, (*labels, outcome, reason or ""), count
            elif kind == "odd_member":
                yield Family.ODD_MEMBERS, (*labels, outcome), count
        for event, family in _FAMILY_OF_EVENT.items():
            yield family, (), totals[event.total]
        for family, value_of in _OF_ACCEPTANCE.items():
            for labels, acceptance in self._counts.acceptance.items():
                yield family, labels, value_of(acceptance)
        for (family, labels), count in self._counters.items():
            yield family, labels, count
        yield Family.COMMIT_DURATION, (), self._commits
        yield Family.PUBLISH_DELAY, (), self._delays
        for statistics in self._statistics.values():
            yield from _samples_of_client(statistics)

    def _increase(self, family: Family, *labels: str) -> None:
        with self._lock:
            self._counters[family, labels] += 1


def _printable(text: str) -> str:
    """Return a label of bounded length that every format and reader accepts."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in text[:_MAX_CHARACTERS]
    )


def _empty(family: Family) -> Any:
    return _NEW_FAMILY[family.kind](family.value, family.explanation, labels=family.labels)


def _buckets(histogram: BucketCounts) -> Sequence[tuple[str, float]]:
    """Return the buckets as they are exposed: each includes all lower ones."""
    bounds = (*map(floatToGoString, histogram.bounds), "+Inf")
    return list(zip(bounds, accumulate(histogram.counts), strict=True))


def _traffic(statistics: ClientStatistics | None) -> dict[str | int, tuple[int, int]]:
    """Return the bytes sent to and received from each broker since the client knows it.

    The client's own sums fall when it forgets a broker that is away.
    """
    return {
        # The name of a learned broker changes with its address.
        broker.nodeid if broker.source == "learned" else name: (broker.txbytes, broker.rxbytes)
        for name, broker in (statistics.brokers.items() if statistics else ())
    }


def _growth(now: int, before: int) -> int:
    return now - before if now >= before else now


def _samples_of_client(statistics: ClientStatistics) -> Iterator[_Sample]:
    client = statistics.type
    queued = statistics.replyq if client == "consumer" else statistics.msg_cnt
    yield Family.CLIENT_QUEUE, (client,), queued
    for broker in statistics.brokers.values():
        if broker.source != "learned":  # Otherwise a second name of a learned broker.
            continue
        labels = client, str(broker.nodeid)
        yield Family.BROKER_LATENCY, labels, broker.rtt.p99 / 1_000_000
        yield Family.BROKER_THROTTLE, labels, broker.throttle.p99 / 1000
        yield Family.BROKER_ERRORS, (*labels, "send"), broker.txerrs
        yield Family.BROKER_ERRORS, (*labels, "receive"), broker.rxerrs
        yield Family.BROKER_ERRORS, (*labels, "timeout"), broker.req_timeouts
