"""Logs: one JSON object per line for machines, coloured lines for a terminal.

Everything that the process has to say goes through here, the Kafka client and other libraries
included. No line holds payload text unless a preview is switched on, and none holds a credential.
"""

import json
import logging
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import IO, Any, BinaryIO, Final, Literal, Protocol, Self, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, Processor

from consumer.core.redaction import MASK, is_secret, mask_user_info, preview
from consumer.telemetry.clock import Clock, SystemClock

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]
_SWITCH: Final = {signal.SIGUSR1}


# Fields that several events have.
_PLACE: Final = ("topic", "partition", "offset")
_REQUEST: Final = (*_PLACE, "last_offset", "request_id", "traceparent")


class LogEvent(StrEnum):
    """Every event that this service logs, with what the documents print of it.

    Attributes:
        explanation: the sentence that says what it means.
        fields: names of all fields that its lines may have, beside timestamp, level and event.

    """

    explanation: str
    fields: tuple[str, ...]

    def __new__(cls, value: str, explanation: str, *fields: str) -> Self:
        """Make the member that equals its name in the log."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.explanation = explanation
        member.fields = fields
        return member

    SERVICE_STARTED = (
        "service_started",
        "The service runs; the line holds the effective settings.",
        *("version", "cluster", "adapters", "settings"),
    )
    PROGRESS = (
        "progress",
        "Every minute in which something was read: totals of all outcomes so far.",
        *("totals", "open_requests"),
    )
    SERVICE_STOPPED = (
        "service_stopped",
        "The service has stopped; the line says why.",
        *("code", "error", "totals", "exception"),
    )
    SETTINGS_REFUSED = (
        "settings_refused",
        "Wrong settings; the service does not start.",
        *("setting", "source", "given", "error"),
    )
    LOG_LEVEL_CHANGED = (
        "log_level_changed",
        "SIGUSR1 switched lines of level debug on or off.",
        "to",
    )
    HTTP_LISTENING = "http_listening", "Probes and metrics are served at this address.", "address"
    SHUTDOWN_REQUESTED = "shutdown_requested", "A signal asked the service to stop.", "reason"
    TOPIC_MISSING = (
        "topic_missing",
        "A topic does not exist, or may not be read or described.",
        *("topic", "error"),
    )
    WAITING_FOR_PARTITIONS = (
        "waiting_for_partitions",
        "The group has given none: it waits for a broker, or for members that may come back.",
        "group",
    )
    PARTITIONS_ASSIGNED = (
        "partitions_assigned",
        "The group gave partitions to this member.",
        *("partitions", "begin_at"),
    )
    PARTITIONS_REVOKED = (
        "partitions_revoked",
        "The group takes partitions back in good order.",
        "partitions",
    )
    PARTITIONS_LOST = (
        "partitions_lost",
        "Partitions were taken away without being asked for.",
        "partitions",
    )
    REREAD_STARTED = (
        "reread_started",
        "A partition is read again to find its open requests.",
        *_PLACE,
        *("position", "open_requests", "deleted"),
    )
    REREAD_PROGRESS = (
        "reread_progress",
        "How far a partition has been read again.",
        *_PLACE,
        *("position", "left"),
    )
    REREAD_FINISHED = "reread_finished", "A partition is live again.", *_PLACE, "open_requests"
    STATE_DIFFERS = (
        "state_differs",
        "Reading again did not find the committed state, though nothing has changed: a bug.",
        *_PLACE,
        "requests",
    )
    CHECKPOINT_IGNORED = (
        "checkpoint_ignored",
        "Commit metadata that is not of this service.",
        *_PLACE,
        *("reason", "starts_at"),
    )
    SILENT_PARTITION_CLOSED = (
        "silent_partition_closed",
        "A partition fell silent; its open requests were closed.",
        *("topic", "partition", "requests"),
    )
    BAD_PAYLOAD = (
        "bad_payload",
        "A message that cannot be read; limited per reason.",
        *_PLACE,
        *("request_id", "traceparent", "key", "size", "digest", "reason", "detail", "held_back"),
        "payload",
    )
    STATS_REFUSED = (
        "stats_refused",
        "A request whose numbers cannot be used; limited per reason.",
        *_REQUEST,
        *("outcome", "reason", "claims", "detail", "held_back"),
    )
    REQUEST_FINISHED = (
        "request_finished",
        "At level debug: what became of a request, before that is committed.",
        *_REQUEST,
        *("outcome", "reason", "engine", "model"),
    )
    ADAPTER_FAILED = (
        "adapter_failed",
        "An adapter raised an exception; limited per engine.",
        *_REQUEST,
        *("engine", "error", "held_back"),
    )
    RECORD_TOO_LARGE = (
        "record_too_large",
        "A record that the topic would not take was cut.",
        *_REQUEST,
        "limit",
    )
    MESSAGE_SKIPPED = (
        "message_skipped",
        "A message was passed over because the settings say so.",
        *_PLACE,
        "size",
    )
    TRANSACTION_ABORTED = (
        "transaction_aborted",
        "A transaction came to nothing; its records and positions are delivered again.",
        *("error", "messages", "follows"),
    )
    PRODUCER_FENCED = (
        "producer_fenced",
        "Another process took over this transactional id.",
        *("transactional_id", "error"),
    )
    CLIENTS_REBUILT = (
        "clients_rebuilt",
        "The Kafka clients were of no use any more; new ones take their place.",
        *("error", "times"),
    )
    LAST_STABLE_OFFSET_HELD = (
        "last_stable_offset_held",
        "A transaction of somebody else, which does not end, hides messages of a partition.",
        *_PLACE,
        *("hidden", "seconds"),
    )
    TOPIC_RECREATED = (
        "topic_recreated",
        "A topic was deleted and made anew; it is read from start.",
        *_PLACE,
        *("error", "starts_at"),
    )
    COMMIT_FAILED = (
        "commit_failed",
        "A commit of offsets failed; the line says what follows.",
        *_PLACE,
        *("error", "follows"),
    )
    DELIVERY_FAILED = (
        "delivery_failed",
        "The broker did not take a record or dead letter.",
        *_PLACE,
        *("request_id", "traceparent", "output_topic", "size", "error", "messages", "follows"),
    )
    LOOP_STALLED = (
        "loop_stalled",
        "The main loop has not turned for too long; the line says where it stands.",
        *("seconds", "stack"),
    )
    LOOP_TURNS_AGAIN = "loop_turns_again", "The main loop turns again."
    KAFKA_ERROR = (
        "kafka_error",
        "The Kafka client reports an error.",
        *_PLACE,
        *("transactional_id", "asked", "error", "starts_at", "follows"),
    )
    LIBRDKAFKA = (
        "librdkafka",
        "The Kafka client's own log line.",
        *("facility", "client", "text", "held_back"),
    )
    LIBRARY = "library", "A log line of another library.", *("library", "text", "exception")


class Logger(Protocol):
    """A logger that type checkers let log events of the catalogue only."""

    def debug(self, event: LogEvent, /, **fields: object) -> None:
        """Log what only someone who searches for a fault wants to see."""

    def info(self, event: LogEvent, /, **fields: object) -> None:
        """Log what happens in good order."""

    def warning(self, event: LogEvent, /, **fields: object) -> None:
        """Log what somebody should look at some day."""

    def error(self, event: LogEvent, /, **fields: object) -> None:
        """Log what somebody should look at now."""

    def exception(self, event: LogEvent, /, **fields: object) -> None:
        """Log an error with the traceback of the exception being handled."""

    def bind(self, **fields: object) -> Self:
        """Return a logger that adds these fields to each line."""
        ...


def get_logger(**fields: object) -> Logger:
    """Return a logger; it follows every later `configure` and `set_level`."""
    return cast("Logger", structlog.get_logger(**fields))


def configure(
    log_format: Format = "auto",
    level: Level = "info",
    *,
    stream: TextIO | None = None,
    preview: int = 0,
    clock: Clock | None = None,
) -> None:
    """Send all logs to one stream, in one format.

    Args:
        log_format: `auto` is `console` on a terminal and `json` elsewhere.
        level: the least important level that is shown.
        stream: standard error by default, so that commands can write data to standard output.
        preview: bytes of payload that a line may show; by default none.
        clock: what the lines' timestamps are read from.

    """
    stream = sys.stderr if stream is None else stream
    processors: list[Processor] = [
        threshold,
        structlog.processors.add_log_level,
        _Stamp(SystemClock() if clock is None else clock),
    ]
    factory: Any
    if log_format == "console" or (log_format == "auto" and stream.isatty()):
        # The default formatter of tracebacks prints local variables: payloads, that is.
        renderer = structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        processors += [_Guard(preview), renderer]
        factory = structlog.PrintLoggerFactory(cast("TextIO", _Patient(stream)))
    else:
        processors += [structlog.processors.format_exc_info, _Guard(preview), _render_json]
        factory = structlog.BytesLoggerFactory(cast("BinaryIO", _Patient(stream.buffer)))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=factory,
        # Lines are rare by design; a cached logger would keep the stream of an earlier command.
        cache_logger_on_first_use=False,
    )
    _forward_standard_logging()
    set_level(level)


def set_level(level: Level) -> None:
    """Change at run time which lines are shown."""
    threshold.number = _number(level)
    threshold.debugging = threshold.number <= logging.DEBUG
    logging.getLogger().setLevel(threshold.number)


def switch_by_signal(level: Level) -> None:
    """Let SIGUSR1 switch lines of level debug on, and back to a level, from now on.

    A thread takes the signal, so that it finds the loggers in no state in between, and finds them
    even where the main thread hangs. Call it in the main thread, before there are others: they take
    over that the signal is not for them.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _SWITCH)
    threading.Thread(target=_switch_for_ever, args=(level,), name="log level", daemon=True).start()


def _switch_for_ever(level: Level) -> None:
    while True:
        signal.sigwait(_SWITCH)
        to: Level = level if threshold.debugging else "debug"
        set_level("debug")  # So that the line is shown, whatever the level was and will be.
        get_logger().info(LogEvent.LOG_LEVEL_CHANGED, to=to)
        set_level(to)


def librdkafka_logger() -> logging.Logger:
    """Return the logger to pass to the Kafka clients as `logger`."""
    logger = logging.getLogger("librdkafka")
    if not any(isinstance(handler, _LibrdkafkaHandler) for handler in logger.handlers):
        logger.addHandler(_LibrdkafkaHandler())
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    return logger


class RateLimiter:
    """Lets the first lines per reason and period pass, and counts what it holds back."""

    def __init__(self, clock: Clock, *, lines: int = 10, period: float = 60.0) -> None:
        self._clock = clock
        self._lines = lines
        self._period = period
        self._windows: dict[str, _Window] = {}

    def admit(self, reason: str) -> int | None:
        """Return None to hold this line back, else how many were held back before it."""
        now = self._clock.monotonic()
        window = self._windows.get(reason)
        if window is None:
            window = self._windows[reason] = _Window(now)
        elif now - window.start >= self._period:
            window.start, window.passed = now, 0
        if window.passed == self._lines:
            window.held_back += 1
            return None
        window.passed += 1
        held_back, window.held_back = window.held_back, 0
        return held_back


class _Window(msgspec.Struct):
    start: float
    passed: int = 0
    held_back: int = 0


class _Patient:
    """A stream that loses what cannot be written: a full disk or a dead reader stops no service."""

    def __init__(self, stream: TextIO | BinaryIO) -> None:
        self._stream = cast("IO[Any]", stream)

    def write(self, text: Any) -> int:
        with suppress(OSError, ValueError):
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


class _Threshold:
    """Drops lines below the level. A processor, so that it can change under bound loggers.

    Attributes:
        number: the level.
        debugging: whether lines of level debug are shown, for those that are dear to make.

    """

    number = logging.INFO
    debugging = False

    def __call__(self, _logger: object, method: str, event: EventDict) -> EventDict:
        if _number(method) < self.number:
            raise structlog.DropEvent
        return event


threshold: Final = _Threshold()


class _Stamp:
    """Puts time, level and event first, where the eye looks for them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        moment = datetime.fromtimestamp(self._clock.wall() / 1000, UTC)
        timestamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        first = {"timestamp": timestamp, "level": event.pop("level"), "event": event.pop("event")}
        return {**first, **event}


_PAYLOAD_KEYS: Final = frozenset(
    {"payload", "value", "body", "raw", "content", "prompt", "messages"}
    | {"value_base64", "body_base64"}
)
# Container runtimes split lines at 16 KiB.
_LONGEST_TEXT: Final = 8_000


class _Guard:
    """Masks credentials and takes payloads out, at any depth; makes the rest encodable."""

    def __init__(self, preview: int) -> None:
        self._preview = preview

    def __call__(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        # Only the console's renderer still finds exc_info here; it is no field.
        exc_info = event.pop("exc_info", None)
        guarded = self._mapping(event)
        return guarded if exc_info is None else guarded | {"exc_info": exc_info}

    def _mapping(self, mapping: Mapping[Any, object]) -> dict[str, Any]:
        guarded = {}
        for key, value in mapping.items():
            name = str(key)
            if name.lower() not in _PAYLOAD_KEYS:
                guarded[name] = MASK if is_secret(name) else self._guarded(value)
            elif self._preview and isinstance(value, str | bytes):
                payload = value.encode(errors="replace") if isinstance(value, str) else value
                guarded[name] = preview(payload, self._preview)
        return guarded

    def _guarded(self, value: object) -> object:
        match value:
            case None | bool() | int() | float():
                return value
            case str():
                return mask_user_info(_shortened(value))
            case bytes():
                return mask_user_info(_shortened(value.decode(errors="backslashreplace")))
            case Mapping():
                return self._mapping(value)
            case msgspec.Struct():
                return self._mapping(msgspec.structs.asdict(value))
            case (str(name), _) if is_secret(name):  # A header.
                return [name, MASK]
            case list() | tuple() | set() | frozenset():
                return [self._guarded(item) for item in value]
            case BaseException():
                return self._guarded(f"{type(value).__name__}: {value}")
            case _:
                return self._guarded(str(value))


def _shortened(text: str) -> str:
    half = _LONGEST_TEXT // 2
    return text if len(text) <= _LONGEST_TEXT else f"{text[:half]} ... {text[-half:]}"


_encoder: Final = msgspec.json.Encoder()


def _render_json(_logger: object, _method: str, event: EventDict) -> bytes:
    try:
        return _encoder.encode(event)
    except (UnicodeEncodeError, OverflowError):  # A lone surrogate; an integer above 64 bits.
        return json.dumps(event, ensure_ascii=False).encode(errors="replace")


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def _forward_standard_logging() -> None:
    root = logging.getLogger()
    if not any(isinstance(handler, _LibraryHandler) for handler in root.handlers):
        root.addHandler(_LibraryHandler())
    logging.captureWarnings(capture=True)


class _LibraryHandler(logging.Handler):
    """Forwards other libraries' log records."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            _log_at(record.levelno)(
                LogEvent.LIBRARY,
                library=record.name,
                text=record.getMessage(),
                exc_info=record.exc_info,
            )
        except Exception:  # noqa: BLE001 - a handler must not raise into the library.
            self.handleError(record)


# All clients share one set of properties, so each warns about the others' ones. What goes wrong
# with a transaction is told by `transaction_aborted`, a coordinator that is slow by `kafka_error`.
_MINOR: Final = frozenset({"CONFWARN", "TXNERR", "GETPID"})


class _LibrdkafkaHandler(logging.Handler):
    """Forwards the Kafka client's log records, which come as (facility, client, text).

    A client without its broker complains many times a second, so complaints are limited per client
    and facility.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines = RateLimiter(SystemClock())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            match record.args:
                case (str(facility), str(client), str(text)):
                    pass
                case _:
                    facility, client, text = "", "", record.getMessage()
            number = logging.DEBUG if facility in _MINOR else record.levelno
            held_back: int | None = 0
            if number >= logging.WARNING:
                held_back = self._lines.admit(f"{client} {facility}")
            if held_back is not None:
                more = {"held_back": held_back} if held_back else {}
                _log_at(number)(
                    LogEvent.LIBRDKAFKA, facility=facility, client=client, text=text, **more
                )
        except Exception:  # noqa: BLE001 - a handler must not raise into the client.
            self.handleError(record)


class _LogMethod(Protocol):
    def __call__(self, event: LogEvent, /, **fields: object) -> None: ...


def _log_at(number: int) -> _LogMethod:
    logger = get_logger()
    if number >= logging.ERROR:
        return logger.error
    if number >= logging.WARNING:
        return logger.warning
    return logger.info if number >= logging.INFO else logger.debug
