"""The list of settings, from which options, checks and documents are derived.

To add a setting, add a field here.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from consumer.core.envelopes.formats import format_names
from consumer.core.envelopes.opener import AUTO
from consumer.core.partition import Options, PredictionTokens
from consumer.core.redaction import mask_user_info
from consumer.settings.values import Duration, Moment, Size, masked
from consumer.telemetry.logging_setup import Format, Level

Name = Annotated[str, Meta(min_length=1, max_length=249)]
_PORT: Final = r"(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4})"
_HOST: Final = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
# librdkafka takes any other text for the name of a host.
_PROTOCOL: Final = r"((?i:(SASL_)?(PLAINTEXT|SSL))://)?"
_SERVER: Final = rf"{_PROTOCOL}({_HOST}(:(?!0+\b){_PORT})?|[0-9A-Fa-f]*(:[0-9A-Fa-f.]*){{2,}})/?"
_ENVELOPES: Final = (AUTO, *format_names())
_CORE: Final = Options()
_LIMITS: Final = _CORE.limits


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the service. Durations are in seconds, sizes in bytes."""

    bootstrap_servers: Annotated[
        str,
        Meta(
            pattern=rf"^(|[\s,]*{_SERVER}(\s*,[\s,]*{_SERVER})*[\s,]*)$",
            description="Kafka brokers for the first connection.",
            extra={
                "allowed": "host or host:port, separated by commas",
                "metavar": "HOST:PORT,...",
            },
        ),
    ] = ""
    topics: Annotated[
        tuple[str, ...],
        Meta(
            description="Input topics. A name that starts with ^ is a pattern.",
            extra={
                "allowed": "topic names of letters, digits, '.', '_' and '-', or POSIX regular "
                "expressions that start with ^; separated by commas"
            },
        ),
    ] = ()
    output_topic: Annotated[Name, Meta(description="Topic of the acceptance records.")] = (
        "acceptance-records"
    )
    dead_letter_topic: Annotated[Name, Meta(description="Topic of the dead letters.")] = (
        "acceptance-dead-letters"
    )
    dead_letters: Annotated[
        Literal["full", "reference", "off"],
        Meta(
            description="Content of a dead letter: all bytes of the message, or only its topic, "
            "partition and offset; off writes no dead letters."
        ),
    ] = "full"
    group: Annotated[Name, Meta(description="Consumer group.")] = "acceptance-consumer"
    delivery: Annotated[
        Literal["exactly_once", "at_least_once"],
        Meta(
            description="exactly_once: one transaction commits records, dead letters and offsets; "
            "at_least_once: a crash may repeat records."
        ),
    ] = "exactly_once"
    transactional_id: Annotated[
        Name | None,
        Meta(
            description="Transactional id of this instance: unique, and the same after each "
            "restart. The default is GROUP-HOSTNAME."
        ),
    ] = None
    fleet: Annotated[
        Name | None,
        Meta(description="Name of the fleet in each record. The id of the cluster if unset."),
    ] = None
    labels: Annotated[dict[str, str], Meta(description="Labels to add to each record.")] = {}
    start: Annotated[
        Moment,
        Meta(
            description="Position at which to start a partition without a committed offset.",
            extra={"kind": "moment"},
        ),
    ] = "earliest"
    newer_checkpoints: Annotated[
        Literal["refuse", "ignore"],
        Meta(
            description="Reaction to a commit that a newer version of the service made: refuse to "
            "start, or ignore its open requests."
        ),
    ] = "refuse"
    skip: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[a-zA-Z0-9._-]{1,249}:[0-9]{1,9}:[0-9]{1,18}$")], ...],
        Meta(
            description="Messages to skip because they crash the service. Each becomes a dead "
            "letter without its bytes.",
            extra={
                "allowed": "TOPIC:PARTITION:OFFSET, such as serving-responses:3:81724, separated "
                "by commas",
                "metavar": "TOPIC:PARTITION:OFFSET",
            },
        ),
    ] = ()
    commit_interval: Annotated[
        Duration,
        Meta(ge=0.01, le=60, description="Maximum time between reading an event and its commit."),
    ] = 1.0
    max_commit_outputs: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Maximum number of records and dead letters per commit.",
        ),
    ] = 50_000
    idle_timeout: Annotated[
        Duration,
        Meta(
            ge=1,
            le=86_400,
            description="Stream time without a new event after which the service closes a request.",
        ),
    ] = _LIMITS.idle_timeout_ms / 1000
    duplicate_window: Annotated[
        Duration,
        Meta(
            ge=0,
            le=86_400,
            description="Stream time beyond idle_timeout for which the service remembers a "
            "request, to recognise late duplicates.",
        ),
    ] = _LIMITS.duplicate_window_ms / 1000
    max_reread: Annotated[
        int,
        Meta(
            ge=10_000,
            le=20_000_000,
            description="Maximum number of messages that a start re-reads. The service closes a "
            "request that began earlier.",
        ),
    ] = _LIMITS.max_reread
    envelope: Annotated[
        str,
        Meta(
            pattern=rf"^({'|'.join(_ENVELOPES)})$",
            description="Format of the input. With auto, the service recognises each message.",
            extra={"allowed": f"one of {', '.join(_ENVELOPES)}"},
        ),
    ] = _CORE.envelope
    paths: Annotated[
        dict[
            Literal[
                "request_id",
                "body",
                "body_base64",
                "sequence",
                "final",
                "timestamp",
                "attempt",
                "model",
                "instance",
                "endpoint",
                "status",
                "labels",
                "each",
                "base64_if",
            ],
            Annotated[str, Meta(pattern=r"^[^.]+(\.[^.]+)*$")],
        ],
        Meta(
            description="Paths of the members of a native event in JSON events of another format: "
            "member names joined by dots. The names may have dots themselves, and a path may lead "
            "through text that holds JSON. each is the path of an array whose entries are the "
            "events, base64_if that of a member that says whether body is base64. Without "
            "request_id, the id of the body counts. If set, the service tries this format first.",
            extra={
                "allowed": "MEMBER=PATH, separated by commas; members are request_id, body, "
                "body_base64, sequence, final, timestamp, attempt, model, instance, "
                "endpoint, status, labels, each, base64_if",
                "metavar": "MEMBER=PATH",
            },
        ),
    ] = {}
    response_types: Annotated[
        tuple[Name, ...], Meta(description="Types of CloudEvents that hold responses.")
    ] = _CORE.response_types
    label_attributes: Annotated[
        tuple[Annotated[str, Meta(pattern="^[a-z0-9]+$")], ...],
        Meta(
            description="Extension attributes of CloudEvents to copy into the labels.",
            extra={"allowed": "names of lower-case letters and digits, separated by commas"},
        ),
    ] = _CORE.label_attributes
    max_inflated_bytes: Annotated[
        Size,
        Meta(
            ge=64 << 10,
            le=1 << 30,
            description="Maximum size of a message or response body after decompression.",
        ),
    ] = _LIMITS.max_inflated_bytes
    max_entries: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Maximum number of entries of one message: of an array, or of lines; what "
            "is opened in vain counts as well.",
        ),
    ] = _LIMITS.max_entries
    max_choices: Annotated[
        int,
        Meta(ge=1, le=100_000, description="Maximum number of choices of one response."),
    ] = _LIMITS.max_choices
    max_segment_bytes: Annotated[
        Size,
        Meta(
            ge=1 << 10,
            le=64 << 20,
            description="Maximum size of the raw segments per request that wait for the end of "
            "their line.",
        ),
    ] = _LIMITS.max_segment_bytes
    prediction_tokens: Annotated[
        PredictionTokens,
        Meta(
            description="What accepted_prediction_tokens and rejected_prediction_tokens in usage "
            "are: drafts behind the gateway smg; with ignore, Predicted Outputs as at OpenAI."
        ),
    ] = _CORE.prediction_tokens
    max_stats_bytes: Annotated[
        Size,
        Meta(
            ge=1 << 10,
            le=16 << 20,
            description="Maximum size of the statistics in one place of a response.",
        ),
    ] = _CORE.max_stats_bytes
    log_level: Annotated[Level, Meta(description="Minimum log level.")] = "info"
    log_format: Annotated[
        Format, Meta(description="Format of the log. With auto, console on a terminal, else json.")
    ] = "auto"
    log_preview_bytes: Annotated[
        Size,
        Meta(
            ge=0,
            le=4096,
            description="Maximum size of the payload in log lines about bad payloads. Payloads "
            "hold what people wrote: use 0 in production.",
        ),
    ] = 0
    http_address: Annotated[
        str,
        Meta(
            pattern=rf"^(off|{_HOST}:{_PORT})$",
            description="Address of /healthz, /readyz and /metrics. Port 0 selects a free port, "
            "which the log shows.",
            extra={
                "allowed": "off, or HOST:PORT with a port up to 65535, and an IPv6 address in "
                "brackets",
                "metavar": "HOST:PORT|off",
            },
        ),
    ] = "0.0.0.0:8080"
    shutdown_timeout: Annotated[
        Duration,
        Meta(
            ge=1,
            le=600,
            description="Maximum time to finish work after a stop is requested.",
        ),
    ] = 20.0
    kafka: Annotated[
        dict[str, str], Meta(description="librdkafka properties of all Kafka clients.")
    ] = {}
    kafka_consumer: Annotated[
        dict[str, str], Meta(description="librdkafka properties of the consumer only.")
    ] = {}
    kafka_producer: Annotated[
        dict[str, str], Meta(description="librdkafka properties of the producer only.")
    ] = {}

    @property
    def transactional(self) -> bool:
        """Whether a transaction commits records and offsets together."""
        return self.delivery == "exactly_once"


def effective(settings: Settings) -> dict[str, object]:
    """Return the settings for the log, with every credential masked."""
    shown: dict[str, object] = {}
    for name, value in msgspec.structs.asdict(settings).items():
        match value:
            case dict():
                shown[name] = {key: masked(key, text) for key, text in value.items()}
            case str():
                shown[name] = mask_user_info(value)
            case _:
                shown[name] = value
    return shown
