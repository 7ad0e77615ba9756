"""Metrics: what Prometheus is told, from sums that the main thread adds up batch by batch.

Nothing is looked up or locked per event. A scrape reads under a lock what the last batch left.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from importlib.metadata import version
from itertools import accumulate
from typing import Any, Final, Literal, Self

import msgspec
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
from consumer.telemetry.outcome_counts import (
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

MetricKind = Literal["counter", "gauge", "histogram"]
ClientName = Literal["consumer", "producer"]


class Family(StrEnum):
    """Every metric of this service, with its type, its labels and the sentence that explains it."""

    kind: MetricKind
    labels: tuple[str, ...]
    explanation: str

    def __new__(cls, value: str, kind: MetricKind, labels: str, explanation: str) -> Self:
        """Make the member that equals the name of its metric."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.kind, member.labels, member.explanation = kind, tuple(labels.split()), explanation
        return member

    REQUESTS = (
        "acceptance_requests_total",
        "counter",
        "engine model outcome reason",
        "Finished requests by outcome, counted when the commit that tells of them is done.",
    )
    VERIFY_STEPS = (
        "acceptance_verify_steps_total",
        "counter",
        "engine model",
        "Verify steps of published requests that report their accepted draft tokens as well.",
    )
    ACCEPTED = (
        "acceptance_accepted_draft_tokens_total",
        "counter",
        "engine model",
        "Draft tokens accepted in the steps of acceptance_verify_steps_total.",
    )
    VERIFY_STEPS_ALONE = (
        "acceptance_verify_steps_without_accepted_total",
        "counter",
        "engine model",
        "Verify steps of requests whose accepted draft tokens are unknown (SGLang before 0.5.6).",
    )
    DRAFTED = (
        "acceptance_draft_tokens_total",
        "counter",
        "engine model",
        "Draft tokens proposed, of published requests whose engine counts them (not SGLang).",
    )
    RATED_ACCEPTED = (
        "acceptance_measured_accepted_draft_tokens_total",
        "counter",
        "engine model",
        "Draft tokens accepted of those in acceptance_draft_tokens_total.",
    )
    STEPS = (
        "acceptance_step_accepted_draft_tokens",
        "histogram",
        "engine model",
        "Accepted draft tokens per verify step, of published requests with a histogram.",
    )
    LENGTHS = (
        "acceptance_request_mean_length",
        "histogram",
        "engine model",
        "Mean acceptance length per published request: tokens per verify step, bonus included.",
    )
    RATIOS = (
        "acceptance_request_draft_acceptance_ratio",
        "histogram",
        "engine model",
        "Draft acceptance rate per published request whose engine counts the drafts, from 0 to 1.",
    )
    MESSAGES = (
        "acceptance_messages_total",
        "counter",
        "envelope outcome reason",
        "Messages by envelope and outcome; the envelope is unknown where none was recognised.",
    )
    REREAD = (
        "acceptance_reread_messages_total",
        "counter",
        "",
        "Messages read again after an assignment, to find open requests; nothing is told of them.",
    )
    DEAD_LETTERS = (
        "acceptance_dead_letters_total",
        "counter",
        "kind reason",
        "Dead letters delivered; the reason is the outcome where the outcome has none.",
    )
    DROPPED = (
        "acceptance_dropped_outputs_total",
        "counter",
        "",
        "Records and dead letters larger than their topic takes, even alone: lost.",
    )
    OPEN_REQUESTS = ("acceptance_open_requests", "gauge", "", "Requests that are open.")
    OLDEST_OPEN = (
        "acceptance_oldest_open_request_age_seconds",
        "gauge",
        "",
        "Stream time since the oldest open request began; 0 without one.",
    )
    POSSIBLE_REPEATS = (
        "acceptance_possible_repeats_total",
        "counter",
        "",
        "Whole responses that may repeat ones which a restart has forgotten.",
    )
    LAG = (
        "acceptance_consumer_lag_messages",
        "gauge",
        "topic partition",
        "End of the log at the last fetch minus position; what an open transaction hides counts.",
    )
    ASSIGNED = ("acceptance_assigned_partitions", "gauge", "", "Partitions assigned.")
    REREADING = (
        "acceptance_rereading_partitions",
        "gauge",
        "",
        "Assigned partitions that are still read again.",
    )
    REREAD_LEFT = (
        "acceptance_reread_remaining_messages",
        "gauge",
        "",
        "Messages still to be read again before these are live.",
    )
    REBALANCES = (
        "acceptance_rebalances_total",
        "counter",
        "event",
        "What the group did: assigned (perhaps nothing new), revoked or lost.",
    )
    TRANSACTIONS = (
        "acceptance_transactions_total",
        "counter",
        "result",
        "Transactions committed and aborted; batches delivered with delivery=at_least_once.",
    )
    COMMIT_DURATION = (
        "acceptance_commit_duration_seconds",
        "histogram",
        "",
        "Time that a batch took from its hand-over to the answer of the broker, where it counts.",
    )
    PUBLISH_DELAY = (
        "acceptance_publish_delay_seconds",
        "histogram",
        "",
        "Time from a request's last event, by the fleet's clocks, to the commit of its record.",
    )
    CLIENTS_REBUILT = (
        "acceptance_clients_rebuilt_total",
        "counter",
        "",
        "How often the Kafka clients were lost and replaced.",
    )
    CLIENT_QUEUE = (
        "acceptance_librdkafka_queue_messages",
        "gauge",
        "client",
        "Messages that wait in the client: to be read (consumer), to be acknowledged (producer).",
    )
    SENT_BYTES = (
        "acceptance_librdkafka_sent_bytes_total",
        "counter",
        "client",
        "Bytes that the Kafka client has sent.",
    )
    RECEIVED_BYTES = (
        "acceptance_librdkafka_received_bytes_total",
        "counter",
        "client",
        "Bytes that the Kafka client has received.",
    )
    BROKER_LATENCY = (
        "acceptance_librdkafka_broker_rtt_seconds",
        "gauge",
        "client broker",
        "Round trip of requests to a broker, fetches included: 99th percentile of 3 s.",
    )
    BROKER_THROTTLE = (
        "acceptance_librdkafka_broker_throttle_seconds",
        "gauge",
        "client broker",
        "How long a quota of a broker held the client back: 99th percentile of 3 s.",
    )
    BROKER_ERRORS = (
        "acceptance_librdkafka_broker_errors_total",
        "counter",
        "client broker kind",
        "Errors with a broker: send, receive, or timeout of a request.",
    )


# What is there from the start, so that the first one is seen as an increase.
_FROM_START: Final[tuple[tuple[Family, Labels], ...]] = (
    (Family.CLIENTS_REBUILT, ()),
    *((Family.REBALANCES, (event,)) for event in ("assigned", "revoked", "lost")),
    *((Family.TRANSACTIONS, (result,)) for result in ("committed", "aborted")),
)
_LABELLED: Final = {"request": Family.REQUESTS, "message": Family.MESSAGES}
_SINGLE: Final[Mapping[EventTotal, Family]] = {
    EventTotal.REREAD_MESSAGES: Family.REREAD,
    EventTotal.POSSIBLE_REPEATS: Family.POSSIBLE_REPEATS,
    EventTotal.DROPPED_OUTPUTS: Family.DROPPED,
}
_TRAFFIC: Final = Family.SENT_BYTES, Family.RECEIVED_BYTES
_OF_ACCEPTANCE: Final[Mapping[Family, Callable[[AcceptanceCounts], int | BucketCounts]]] = {
    Family.VERIFY_STEPS: lambda counts: counts.sums.verify_steps,
    Family.ACCEPTED: lambda counts: counts.sums.accepted,
    Family.VERIFY_STEPS_ALONE: lambda counts: counts.sums.verify_steps_without_accepted,
    Family.DRAFTED: lambda counts: counts.sums.drafted,
    Family.RATED_ACCEPTED: lambda counts: counts.sums.accepted_of_drafted,
    Family.STEPS: lambda counts: counts.accepted_per_step,
    Family.LENGTHS: lambda counts: counts.mean_lengths,
    Family.RATIOS: lambda counts: counts.acceptance_rates,
}


class AssignmentState(Struct, frozen=True):
    """State of the assigned partitions at one moment.

    Attributes:
        open_requests: how many requests are open.
        oldest_open_age: seconds of stream time since the oldest of them began.
        lags: messages between position and end by topic and partition, where the end is known.
        assigned: how many partitions are assigned.
        rereading: how many of them are still read again.
        reread_remaining: messages that are still to be read again.

    """

    open_requests: int = 0
    oldest_open_age: float = 0.0
    lags: Mapping[tuple[str, int], int] = {}
    assigned: int = 0
    rereading: int = 0
    reread_remaining: int = 0


class _Window(Struct, frozen=True):
    p99: int = 0


class _Broker(Struct, frozen=True):
    nodeid: int = -1
    source: str = ""
    rtt: _Window = _Window()  # Microseconds.
    throttle: _Window = _Window()  # Milliseconds.
    txbytes: int = 0
    rxbytes: int = 0
    txerrs: int = 0
    rxerrs: int = 0
    req_timeouts: int = 0


class _Statistics(Struct, frozen=True):
    """What is used of librdkafka's statistics; the rest is skipped.

    All partitions of a consumer share one queue, whose length is `replyq`.
    """

    type: ClientName
    replyq: int = 0
    msg_cnt: int = 0
    brokers: dict[str, _Broker] = {}


_decode_statistics = msgspec.json.Decoder(_Statistics).decode


class Metrics:
    """Counts for the whole life of the process, whatever becomes of its clients.

    Attributes:
        registry: what is scraped.
        state: replaced as a whole by the main thread.

    """

    def __init__(self) -> None:
        self.state = AssignmentState()
        self._counts = OutcomeCounts()
        self._counters: Counter[tuple[Family, Labels]] = Counter(dict.fromkeys(_FROM_START, 0))
        self._letters: Counter[Labels] = Counter()
        self._commits = BucketCounts(_COMMIT_BOUNDS)
        self._delays = BucketCounts(_DELAY_BOUNDS)
        self._statistics: dict[ClientName, _Statistics] = {}
        self._lock = threading.Lock()  # Of all that is counted.
        self._known: dict[tuple[str, str], Labels] = {}
        self._pairs = 0
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        build = Info("acceptance_build", "Versions of what runs.", registry=self.registry)
        build.info({"version": version("acceptance-consumer"), "librdkafka": libversion()[0]})
        self.registry.register(self)

    @property
    def totals(self) -> Counter[Total]:
        """How often each outcome occurred; for the main thread, which alone adds to it."""
        return self._counts.totals

    def labels_of(self, result: RequestResult) -> Labels:
        """Return engine and model of a request, as labels that a stranger cannot multiply.

        Only a published record brings in a new model, and only so many do; others are `other`.
        """
        record = result.record
        if record is not None:
            engine, model = record.engine, record.model
        else:
            engine = result.claims[0] if len(result.claims) == 1 else UNKNOWN
            model = model_of(result.response)
        if model is None:
            return engine, UNKNOWN
        known = self._known.get((engine, model))
        if known is not None:
            return known
        if record is None or self._pairs == MAX_PAIRS:
            return engine, OTHER
        self._pairs += 1
        labels = self._known[engine, model] = engine, _printable(model)
        self._known.setdefault((UNKNOWN, model), (UNKNOWN, labels[1]))
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
                    if output.kind == "dead_letter":
                        self._letters[output.subject, output.reason or output.outcome] += 1
                    elif output.timestamp:
                        self._delays.observe(max(committed_at_ms - output.timestamp, 0) / 1000)

    def on_statistics(self, text: str) -> None:
        """Take the statistics of a Kafka client; called inside its polls."""
        try:
            statistics = _decode_statistics(text)
        except msgspec.MsgspecError:
            return  # Of a librdkafka that this version does not know; it must not end a poll.
        client = statistics.type
        with self._lock:
            before = _traffic(self._statistics.get(client))
            for broker, now in _traffic(statistics).items():
                grown = map(_grown, now, before.get(broker, (0, 0)))
                for family, more in zip(_TRAFFIC, grown, strict=True):
                    self._counters[family, (client,)] += more
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
            for family, labels, value in (*self._counted(), *_of_state(state)):
                if isinstance(value, BucketCounts):
                    families[family].add_metric(labels, _buckets(value), value.sum)
                else:
                    families[family].add_metric(labels, value)
        return families.values()

    def _counted(self) -> Iterator[tuple[Family, Labels, float | BucketCounts]]:
        totals = self._counts.totals
        for (kind, outcome, reason, labels), count in totals.items():
            if family := _LABELLED.get(kind):
                yield family, (*labels, outcome, reason or ""), count
        for event, family in _SINGLE.items():
            yield family, (), totals[event.total]
        for family, value_of in _OF_ACCEPTANCE.items():
            for labels, acceptance in self._counts.acceptance.items():
                yield family, labels, value_of(acceptance)
        for (family, labels), count in self._counters.items():
            yield family, labels, count
        for labels, count in self._letters.items():
            yield Family.DEAD_LETTERS, labels, count
        yield Family.COMMIT_DURATION, (), self._commits
        yield Family.PUBLISH_DELAY, (), self._delays
        for statistics in self._statistics.values():
            yield from _of_statistics(statistics)

    def _increase(self, family: Family, *labels: str) -> None:
        with self._lock:
            self._counters[family, labels] += 1


def _printable(text: str) -> str:
    """Return a label of bounded length that every format and reader takes."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in text[:_MAX_CHARACTERS]
    )


def _empty(family: Family) -> Any:
    made = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
        "histogram": HistogramMetricFamily,
    }[family.kind]
    return made(family.value, family.explanation, labels=family.labels)


def _buckets(histogram: BucketCounts) -> Sequence[tuple[str, float]]:
    """Return the buckets as they are exposed: each with all that lies below."""
    bounds = (*map(floatToGoString, histogram.bounds), "+Inf")
    return list(zip(bounds, accumulate(histogram.counts), strict=True))


def _of_state(state: AssignmentState) -> Iterator[tuple[Family, Labels, float]]:
    yield Family.OPEN_REQUESTS, (), state.open_requests
    yield Family.OLDEST_OPEN, (), state.oldest_open_age
    yield Family.ASSIGNED, (), state.assigned
    yield Family.REREADING, (), state.rereading
    yield Family.REREAD_LEFT, (), state.reread_remaining
    for (topic, partition), lag in state.lags.items():
        yield Family.LAG, (topic, str(partition)), lag


def _traffic(statistics: _Statistics | None) -> dict[str | int, tuple[int, int]]:
    """Return the bytes sent to and received from each broker, since it is known.

    The sums of the client itself fall when it forgets a broker that is away.
    """
    return {
        # The name of one that was learned changes with its address.
        broker.nodeid if broker.source == "learned" else name: (broker.txbytes, broker.rxbytes)
        for name, broker in (statistics.brokers.items() if statistics else ())
    }


def _grown(now: int, before: int) -> int:
    return now - before if now >= before else now


def _of_statistics(statistics: _Statistics) -> Iterator[tuple[Family, Labels, float]]:
    client = statistics.type
    waiting = statistics.replyq if client == "consumer" else statistics.msg_cnt
    yield Family.CLIENT_QUEUE, (client,), waiting
    for broker in statistics.brokers.values():
        if broker.source != "learned":  # Else it is one of these under another name.
            continue
        labels = client, str(broker.nodeid)
        yield Family.BROKER_LATENCY, labels, broker.rtt.p99 / 1_000_000
        yield Family.BROKER_THROTTLE, labels, broker.throttle.p99 / 1000
        yield Family.BROKER_ERRORS, (*labels, "send"), broker.txerrs
        yield Family.BROKER_ERRORS, (*labels, "receive"), broker.rxerrs
        yield Family.BROKER_ERRORS, (*labels, "timeout"), broker.req_timeouts
