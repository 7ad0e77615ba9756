"""Configures logging: one JSON object per line for machines, coloured lines for a terminal.

The service logs through structlog, libraries log through the standard library; one handler of the
root logger renders the lines of both. No line holds a credential, nor payload text unless the
operator has switched a preview on.
"""

import codecs
import logging
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final, Literal, TextIO, cast

import msgspec
import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor

from consumer.core.redaction import MASK, is_secret, mask_user_info, preview
from consumer.telemetry.clock import SystemClock
from consumer.telemetry.json_lines import json_line
from consumer.telemetry.log_events import LogEvent, Logger
from consumer.telemetry.rate_limiter import RateLimiter

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]

_ROOT: Final = logging.getLogger()
_LIBRDKAFKA: Final = "librdkafka"
_LEVEL_SIGNALS: Final = {signal.SIGUSR1}
_LEVEL_AND_TIME: Final[list[Processor]] = [
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso"),
]
# All clients share one set of properties, so each warns about those of the others. The events
# transaction_aborted and kafka_error report transactions and slow coordinators.
_MINOR_FACILITIES: Final = frozenset({"CONFWARN", "TXNERR", "GETPID"})
_FIRST_FIELDS: Final = ("timestamp", "level", "event")
_PAYLOAD_FIELDS: Final = frozenset(
    {"payload", "value", "body", "raw", "content", "prompt", "messages"}
    | {"value_base64", "body_base64"}
)
_MAX_TEXT: Final = 8_000  # Container runtimes split lines at 16 KiB.


def get_logger(**fields: object) -> Logger:
    """Return a logger; it follows every later `configure` and `set_level`."""
    return cast("Logger", structlog.stdlib.get_logger("acceptance-consumer", **fields))


def configure(
    log_format: Format = "auto",
    level: Level = "info",
    *,
    stream: TextIO | None = None,
    preview_bytes: int = 0,
) -> None:
    """Send all logs to one stream, in one format.

    Args:
        log_format: `auto` is `console` on a terminal and `json` elsewhere.
        level: the minimum level.
        stream: standard error by default, so that commands can write data to standard output.
        preview_bytes: how many bytes of payload a line may show.

    """
    stream = sys.stderr if stream is None else stream
    redactor = _Redactor(preview_bytes)
    renderers: list[Processor]
    if log_format == "console" or (log_format == "auto" and stream.isatty()):
        # The default formatter of tracebacks prints local variables, which may be payload.
        console = structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        renderers = [redactor, console]
    else:
        renderers = [structlog.processors.format_exc_info, redactor, _render_json]
        stream = cast("TextIO", codecs.getwriter("utf-8")(stream.buffer, "replace"))
    handler = _Handler(stream)
    handler.setFormatter(
        ProcessorFormatter(
            processors=[ProcessorFormatter.remove_processors_meta, *renderers],
            foreign_pre_chain=[_describe_library_record, *_LEVEL_AND_TIME],
            pass_foreign_args=True,
        )
    )
    for old in [one for one in _ROOT.handlers if isinstance(one, _Handler)]:
        _ROOT.removeHandler(old)
    _ROOT.addHandler(handler)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_LEVEL_AND_TIME,
            ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    logging.captureWarnings(capture=True)
    set_level(level)


def set_level(level: Level) -> None:
    """Change the minimum level at run time."""
    _ROOT.setLevel(level.upper())


def is_debug_enabled() -> bool:
    """Return whether lines of level debug are logged, before an expensive line is built."""
    return _ROOT.level <= logging.DEBUG


def toggle_debug_on_sigusr1(level: Level) -> None:
    """Let SIGUSR1 switch between level debug and another level from now on.

    A thread receives the signal, so that it works even if the main thread hangs. Call this in the
    main thread before other threads exist: they inherit that the signal is blocked.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _LEVEL_SIGNALS)
    threading.Thread(target=_toggle_forever, args=(level,), name="log level", daemon=True).start()


def _toggle_forever(level: Level) -> None:
    while True:
        signal.sigwait(_LEVEL_SIGNALS)
        new_level: Level = level if is_debug_enabled() else "debug"
        set_level("debug")  # The next line must appear at any level.
        get_logger().info(LogEvent.LOG_LEVEL_CHANGED, new_level=new_level)
        set_level(new_level)


def librdkafka_logger() -> logging.Logger:
    """Return the logger to pass to the Kafka clients as `logger`."""
    logger = logging.getLogger(_LIBRDKAFKA)
    if not logger.filters:
        logger.addFilter(_LibrdkafkaFilter())
    return logger


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines to the stream."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drop the line: a full disk or a closed pipe must not stop the service."""


class _LibrdkafkaFilter(logging.Filter):
    """Lowers the level of minor lines, and limits complaints per client and facility.

    A client without its broker complains many times a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._limiter = RateLimiter(SystemClock())

    def filter(self, record: logging.LogRecord) -> bool:
        facility, client, _ = _librdkafka_fields(record.args)
        if facility in _MINOR_FACILITIES:
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        if record.levelno < _ROOT.level:
            return False
        if record.levelno >= logging.WARNING:
            suppressed = self._limiter.admit(f"{client} {facility}")
            record.__dict__["suppressed"] = suppressed
            return suppressed is not None
        return True


def _librdkafka_fields(args: object) -> tuple[str, str, str | None]:
    """Return facility, client and text of a line; text is None in a line of another form."""
    match args:
        case (str(facility), str(client), str(text)):
            return facility, client, text
        case _:
            return "", "", None


def _describe_library_record(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Turn a record of the standard library into an event of the catalogue."""
    record, text, args = event["_record"], event["event"], event.pop("positional_args")
    if record.name != _LIBRDKAFKA:
        event.update(event=LogEvent.LIBRARY_LOG, library=record.name, text=text)
        return event
    facility, client, line = _librdkafka_fields(args)
    event.update(
        event=LogEvent.LIBRDKAFKA_LOG,
        facility=facility,
        client=client,
        text=text if line is None else line,
    )
    if suppressed := getattr(record, "suppressed", 0):
        event["suppressed"] = suppressed
    return event


class _Redactor:
    """Masks credentials and removes payloads at any depth; makes the rest encodable."""

    def __init__(self, preview_bytes: int) -> None:
        self._preview_bytes = preview_bytes

    def __call__(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        guarded: EventDict = {name: event.pop(name) for name in _FIRST_FIELDS}
        exc_info = event.pop("exc_info", None)  # Only for the renderer of the console.
        guarded.update(self._mapping(event))
        if exc_info is not None:
            guarded["exc_info"] = exc_info
        return guarded

    def _mapping(self, mapping: Mapping[Any, object]) -> dict[str, Any]:
        guarded = {}
        for key, value in mapping.items():
            name = str(key)
            if name.lower() not in _PAYLOAD_FIELDS:
                guarded[name] = MASK if is_secret(name) else self._guarded(value)
            elif self._preview_bytes and isinstance(value, str | bytes):
                payload = value.encode(errors="replace") if isinstance(value, str) else value
                guarded[name] = preview(payload, self._preview_bytes)
        return guarded

    def _guarded(self, value: object) -> object:
        match value:
            case None | bool() | int() | float():
                return value
            case str():
                return mask_user_info(_shorten(value))
            case bytes():
                return mask_user_info(_shorten(value.decode(errors="backslashreplace")))
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


def _shorten(text: str) -> str:
    half = _MAX_TEXT // 2
    return text if len(text) <= _MAX_TEXT else f"{text[:half]} ... {text[-half:]}"


def _render_json(_logger: object, _method: str, event: EventDict) -> str:
    return json_line(event)
