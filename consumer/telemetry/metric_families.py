"""The catalogue of metrics, from which the operations manual's table is generated."""

from enum import StrEnum
from typing import Literal, Self

MetricKind = Literal["counter", "gauge", "histogram"]


class Family(StrEnum):
    """Every metric of the service, except those of `health` and `acceptance_build_info`.

    Attributes:
        kind: its type.
        labels: names of its labels.
        explanation: its help text.

    """

    kind: MetricKind
    labels: tuple[str, ...]
    explanation: str

    def __new__(cls, value: str, kind: MetricKind, labels: str, explanation: str) -> Self:
        """Create the member that equals the name of its metric."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.kind, member.labels, member.explanation = kind, tuple(labels.split()), explanation
        return member

    REQUESTS = (
        "acceptance_requests_total",
        "counter",
        "engine model outcome reason",
        "Finished requests by outcome, counted when their commit succeeded.",
    )
    VERIFY_STEPS = (
        "acceptance_verify_steps_total",
        "counter",
        "engine model",
        "Verify steps of published requests that also report accepted draft tokens.",
    )
    ACCEPTED = (
        "acceptance_accepted_draft_tokens_total",
        "counter",
        "engine model",
        "Accepted draft tokens in the steps of acceptance_verify_steps_total.",
    )
    VERIFY_STEPS_WITHOUT_ACCEPTED = (
        "acceptance_verify_steps_without_accepted_total",
        "counter",
        "engine model",
        "Verify steps of published requests without accepted draft tokens (SGLang before 0.5.6).",
    )
    DRAFTED = (
        "acceptance_draft_tokens_total",
        "counter",
        "engine model",
        "Proposed draft tokens of published requests whose engine measures them (not SGLang).",
    )
    MEASURED_ACCEPTED = (
        "acceptance_measured_accepted_draft_tokens_total",
        "counter",
        "engine model",
        "Accepted draft tokens among those of acceptance_draft_tokens_total.",
    )
    ACCEPTED_PER_STEP = (
        "acceptance_step_accepted_draft_tokens",
        "histogram",
        "engine model",
        "Accepted draft tokens per verify step of published requests with a histogram.",
    )
    MEAN_LENGTHS = (
        "acceptance_request_mean_length",
        "histogram",
        "engine model",
        "Mean acceptance length per published request: tokens per step, bonus token included.",
    )
    ACCEPTANCE_RATIOS = (
        "acceptance_request_draft_acceptance_ratio",
        "histogram",
        "engine model",
        "Draft acceptance rate, from 0 to 1, per published request whose engine measures drafts.",
    )
    DIFFERING = (
        "acceptance_differing_statements_total",
        "counter",
        "engine field",
        "Records whose engine states another mean or rate than its counts give; counts are right.",
    )
    MESSAGES = (
        "acceptance_messages_total",
        "counter",
        "envelope outcome reason",
        "Messages by envelope and outcome; the envelope is unknown if none was recognised.",
    )
    ODD_MEMBERS = (
        "acceptance_odd_members_total",
        "counter",
        "envelope member",
        "Values of optional event members that the service ignored, since it cannot read them.",
    )
    REREAD = (
        "acceptance_reread_messages_total",
        "counter",
        "",
        "Messages re-read after an assignment to restore open requests; no outcomes count twice.",
    )
    DEAD_LETTERS = (
        "acceptance_dead_letters_total",
        "counter",
        "kind reason",
        "Delivered dead letters; the reason is the outcome if the outcome has no reasons.",
    )
    DROPPED = (
        "acceptance_dropped_outputs_total",
        "counter",
        "",
        "Records and dead letters lost because they exceed the size limit of their topic.",
    )
    OPEN_REQUESTS = ("acceptance_open_requests", "gauge", "", "Open requests.")
    OLDEST_OPEN = (
        "acceptance_oldest_open_request_age_seconds",
        "gauge",
        "",
        "Stream time since the oldest open request began; 0 without open requests.",
    )
    POSSIBLE_REPEATS = (
        "acceptance_possible_repeats_total",
        "counter",
        "",
        "Whole responses that may repeat earlier ones that a restart has forgotten.",
    )
    SLOW = (
        "acceptance_slow_messages_total",
        "counter",
        "",
        "Messages that took longer than a quarter of a second to read; the log names each.",
    )
    LAG = (
        "acceptance_consumer_lag_messages",
        "gauge",
        "topic partition",
        "End of the log at the last fetch minus position; messages of open transactions count.",
    )
    ASSIGNED = ("acceptance_assigned_partitions", "gauge", "", "Assigned partitions.")
    REREADING = (
        "acceptance_rereading_partitions",
        "gauge",
        "",
        "Assigned partitions that the service still re-reads.",
    )
    REREAD_REMAINING = (
        "acceptance_reread_remaining_messages",
        "gauge",
        "",
        "Messages that the service still has to re-read in these partitions.",
    )
    REBALANCES = (
        "acceptance_rebalances_total",
        "counter",
        "event",
        "Changes by the consumer group: assigned (perhaps nothing new), revoked or lost.",
    )
    TRANSACTIONS = (
        "acceptance_transactions_total",
        "counter",
        "result",
        "Transactions by result; with delivery=at_least_once, delivered batches.",
    )
    COMMIT_DURATION = (
        "acceptance_commit_duration_seconds",
        "histogram",
        "",
        "Time from the hand-over of a batch to its commit.",
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
        "Replacements of failed Kafka clients.",
    )
    CLIENT_QUEUE = (
        "acceptance_librdkafka_queue_messages",
        "gauge",
        "client",
        "Messages queued in the client: fetched (consumer) or not yet acknowledged (producer).",
    )
    SENT_BYTES = (
        "acceptance_librdkafka_sent_bytes_total",
        "counter",
        "client",
        "Bytes that the Kafka client sent.",
    )
    RECEIVED_BYTES = (
        "acceptance_librdkafka_received_bytes_total",
        "counter",
        "client",
        "Bytes that the Kafka client received.",
    )
    BROKER_LATENCY = (
        "acceptance_librdkafka_broker_rtt_seconds",
        "gauge",
        "client broker",
        "Round-trip time of requests to a broker, with fetches: 99th percentile of 3 s.",
    )
    BROKER_THROTTLE = (
        "acceptance_librdkafka_broker_throttle_seconds",
        "gauge",
        "client broker",
        "Time that a quota of a broker delayed the client: 99th percentile of 3 s.",
    )
    BROKER_ERRORS = (
        "acceptance_librdkafka_broker_errors_total",
        "counter",
        "client broker kind",
        "Errors of a broker by kind: send, receive, or timeout of a request.",
    )
