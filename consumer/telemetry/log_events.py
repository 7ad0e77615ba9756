"""The closed catalogue of log events, from which the operations manual's table is generated."""

from enum import StrEnum
from typing import Protocol, Self

_PLACE = ("topic", "partition", "offset")
_REQUEST = (*_PLACE, "last_offset", "request_id", "traceparent")


class LogEvent(StrEnum):
    """Every event that the service logs.

    Attributes:
        explanation: what happened, in one sentence.
        fields: names of all fields that its lines may have besides timestamp, level and event.

    """

    explanation: str
    fields: tuple[str, ...]

    def __new__(cls, value: str, explanation: str, *fields: str) -> Self:
        """Create the member that equals its name in the log."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.explanation = explanation
        member.fields = fields
        return member

    SERVICE_STARTED = (
        "service_started",
        "The service started; the line shows the effective settings.",
        *("version", "cluster", "adapters", "settings"),
    )
    PROGRESS = (
        "progress",
        "The totals changed in the last minute; the line shows them since the start.",
        *("totals", "open_requests"),
    )
    SERVICE_STOPPED = (
        "service_stopped",
        "The service stopped; the line shows the exit code and the error.",
        *("code", "error", "totals", "exception"),
    )
    SETTINGS_REJECTED = (
        "settings_rejected",
        "A setting was invalid; the service did not start.",
        *("setting", "source", "given", "error"),
    )
    START_FAILED = (
        "start_failed",
        "The service did not start; the line shows the cause, which is not an invalid setting.",
        "error",
    )
    LOG_LEVEL_CHANGED = (
        "log_level_changed",
        "The signal SIGUSR1 changed the log level.",
        "new_level",
    )
    HTTP_SERVER_STARTED = (
        "http_server_started",
        "The HTTP server started to serve probes and metrics at this address.",
        "address",
    )
    SHUTDOWN_REQUESTED = (
        "shutdown_requested",
        "A signal requested the service to stop.",
        "reason",
    )
    TOPIC_UNAVAILABLE = (
        "topic_unavailable",
        "A topic did not exist, or the service was not authorized to read or describe it.",
        *("topic", "error"),
    )
    WAITING_FOR_PARTITIONS = (
        "waiting_for_partitions",
        "No partitions were assigned; the service waited for the broker or a rebalance.",
        "group",
    )
    PARTITIONS_ASSIGNED = (
        "partitions_assigned",
        "The consumer group assigned partitions to this member.",
        *("partitions", "start_offsets"),
    )
    PARTITIONS_REVOKED = (
        "partitions_revoked",
        "The consumer group revoked partitions in a regular rebalance.",
        "partitions",
    )
    PARTITIONS_LOST = (
        "partitions_lost",
        "This member lost partitions before it could commit their results.",
        "partitions",
    )
    REREAD_STARTED = (
        "reread_started",
        "The service started to re-read a partition to restore its open requests.",
        *_PLACE,
        *("position", "open_requests", "deleted"),
    )
    REREAD_PROGRESS = (
        "reread_progress",
        "The service re-read part of a partition; the line shows the remaining messages.",
        *_PLACE,
        *("position", "remaining"),
    )
    REREAD_FINISHED = (
        "reread_finished",
        "The service finished re-reading a partition and began to publish its results.",
        *_PLACE,
        "open_requests",
    )
    STATE_DIFFERS = (
        "state_differs",
        "Re-reading the same messages restored a state that differs from the committed one: a bug.",
        *_PLACE,
        "requests",
    )
    CHECKPOINT_IGNORED = (
        "checkpoint_ignored",
        "The service ignored a checkpoint for this reason, and read from start_offset.",
        *_PLACE,
        *("reason", "start_offset"),
    )
    PARTITION_SILENT = (
        "partition_silent",
        "A partition received no messages for idle_timeout; its open requests were closed.",
        *("topic", "partition", "requests"),
    )
    MESSAGE_SLOW = (
        "message_slow",
        "Reading one message took longer than a quarter of a second; its producer may be hostile.",
        *_PLACE,
        *("size", "seconds"),
    )
    BAD_PAYLOAD = (
        "bad_payload",
        "A message could not be read; the number of lines is limited per reason.",
        *_PLACE,
        *("request_id", "traceparent", "key", "size", "digest", "reason", "detail", "suppressed"),
        "payload",
    )
    STATS_REJECTED = (
        "stats_rejected",
        "Acceptance numbers were rejected; the number of lines is limited per reason.",
        *_REQUEST,
        *("outcome", "reason", "claims", "detail", "suppressed"),
    )
    STATEMENT_DIFFERS = (
        "statement_differs",
        (
            "An engine states another mean or rate than its own counts give; the record has the "
            "latter. The number of lines is limited per engine."
        ),
        *_REQUEST,
        *("engine", "fields", "suppressed"),
    )
    REQUEST_FINISHED = (
        "request_finished",
        "A request finished; its outcome is not committed yet. Logged at level debug.",
        *_REQUEST,
        *("outcome", "reason", "engine", "model"),
    )
    ADAPTER_FAILED = (
        "adapter_failed",
        "An adapter raised an exception; the number of lines is limited per engine.",
        *_REQUEST,
        *("engine", "error", "suppressed"),
    )
    RECORD_TOO_LARGE = (
        "record_too_large",
        "A record exceeded the message size limit of its topic; its longest fields were left out.",
        *_REQUEST,
        "limit",
    )
    MESSAGE_SKIPPED = (
        "message_skipped",
        "A message was skipped because the setting skip names it.",
        *_PLACE,
        "size",
    )
    TRANSACTION_ABORTED = (
        "transaction_aborted",
        "A transaction was aborted; the service sent its records again, except rejected ones.",
        *("error", "outputs", "action"),
    )
    PRODUCER_FENCED = (
        "producer_fenced",
        "Another process took over the transactional id of this instance.",
        *("transactional_id", "error"),
    )
    CLIENTS_REBUILT = (
        "clients_rebuilt",
        "The Kafka clients failed and were replaced.",
        *("error", "consecutive_failures"),
    )
    LAST_STABLE_OFFSET_BLOCKED = (
        "last_stable_offset_blocked",
        "An open transaction of another producer hid messages of a partition for at least 30 s.",
        *_PLACE,
        *("hidden_messages", "seconds"),
    )
    TOPIC_RECREATED = (
        "topic_recreated",
        "A topic was recreated; the service read it from start_offset, or not if there is none.",
        *_PLACE,
        *("error", "start_offset"),
    )
    COMMIT_FAILED = (
        "commit_failed",
        "The broker did not confirm a commit of offsets.",
        *_PLACE,
        *("error", "action"),
    )
    DELIVERY_FAILED = (
        "delivery_failed",
        "The broker rejected a record or dead letter.",
        *_PLACE,
        *("request_id", "traceparent", "output_topic", "size", "error", "outputs", "action"),
    )
    LOOP_STALLED = (
        "loop_stalled",
        "The main loop stopped responding; the line shows its stack.",
        *("seconds", "stack"),
    )
    LOOP_RESUMED = "loop_resumed", "The main loop responded again after it had stalled."
    KAFKA_ERROR = (
        "kafka_error",
        "The Kafka client reported an error, or messages were deleted before they were read.",
        *_PLACE,
        *("transactional_id", "operation", "error", "start_offset", "action"),
    )
    LIBRDKAFKA_LOG = (
        "librdkafka_log",
        "The Kafka client wrote this line; the number of lines is limited per facility.",
        *("facility", "client", "text", "suppressed"),
    )
    LIBRARY_LOG = (
        "library_log",
        "Another library wrote this line.",
        *("library", "text", "exception"),
    )


class Logger(Protocol):
    """A logger that type checkers allow only events of the catalogue."""

    def debug(self, event: LogEvent, /, **fields: object) -> None:
        """Log a detail for the analysis of a fault."""

    def info(self, event: LogEvent, /, **fields: object) -> None:
        """Log an expected event."""

    def warning(self, event: LogEvent, /, **fields: object) -> None:
        """Log an event that an operator should look into."""

    def error(self, event: LogEvent, /, **fields: object) -> None:
        """Log an event that an operator must act on."""

    def exception(self, event: LogEvent, /, **fields: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""

    def bind(self, **fields: object) -> Self:
        """Return a logger that adds these fields to each line."""
        ...
