"""Every setting of the service: what it is called, what it may be, where it may come from.

`Settings` is the one list. The command line's options, the environment names, the checks and the
table in the README are all derived from it, so that a setting is added by adding a field.
"""

import difflib
import math
import re
import tomllib
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from consumer.core.redaction import MASK, is_secret, mask_user_info
from consumer.core.times import LAST_MS
from consumer.telemetry.logging_setup import Format, Level

Duration = Annotated[float, Meta(extra={"kind": "duration"})]
Size = Annotated[int, Meta(extra={"kind": "size"})]
# A smaller number would be seconds, read as a day in 1970.
Moment = Literal["earliest", "latest"] | Annotated[int, Meta(ge=100_000_000_000, le=LAST_MS)]
Name = Annotated[str, Meta(min_length=1, max_length=249)]
_PORT: Final = r"(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4})"
_HOST: Final = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
# As librdkafka reads it, which takes any other text and then looks for a host of that name.
_PROTOCOL: Final = r"((?i:(SASL_)?(PLAINTEXT|SSL))://)?"
_SERVER: Final = rf"{_PROTOCOL}({_HOST}(:(?!0+\b){_PORT})?|[0-9A-Fa-f]*(:[0-9A-Fa-f.]*){{2,}})/?"


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the service. Durations are seconds, sizes are bytes."""

    bootstrap_servers: Annotated[
        str,
        Meta(
            pattern=rf"^(|[\s,]*{_SERVER}(\s*,[\s,]*{_SERVER})*[\s,]*)$",
            description="Kafka brokers to start from.",
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
            description="What a dead letter holds of a bad message: its bytes, or only where it is."
        ),
    ] = "full"
    group: Annotated[Name, Meta(description="Consumer group.")] = "acceptance-consumer"
    delivery: Annotated[
        Literal["exactly_once", "at_least_once"],
        Meta(
            description="Whether records, dead letters and offsets are committed together, in "
            "transactions, or records may be repeated after a crash."
        ),
    ] = "exactly_once"
    transactional_id: Annotated[
        Name | None,
        Meta(
            description="Transactional id of this instance: its own, and the same whenever it is "
            "started again. GROUP-HOSTNAME if unset."
        ),
    ] = None
    fleet: Annotated[
        Name | None, Meta(description="Name of the fleet in each record; the cluster id if unset.")
    ] = None
    labels: Annotated[dict[str, str], Meta(description="Labels to add to each record.")] = {}
    start: Annotated[
        Moment,
        Meta(
            description="Where to start a partition for which the group has no committed offset.",
            extra={"kind": "moment"},
        ),
    ] = "earliest"
    newer_checkpoints: Annotated[
        Literal["refuse", "ignore"],
        Meta(
            description="What to do where the group's last commit was made by a newer version: "
            "refuse to start, or forget the open requests."
        ),
    ] = "refuse"
    skip: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[a-zA-Z0-9._-]{1,249}:[0-9]{1,9}:[0-9]{1,18}$")], ...],
        Meta(
            description="Messages to pass over, because they bring the service down; each is "
            "dead-lettered by reference.",
            extra={
                "allowed": "TOPIC:PARTITION:OFFSET, such as serving-responses:3:81724, separated "
                "by commas",
                "metavar": "TOPIC:PARTITION:OFFSET",
            },
        ),
    ] = ()
    commit_interval: Annotated[
        Duration,
        Meta(ge=0.01, le=60, description="Longest time between an event and its commit."),
    ] = 1.0
    commit_events: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Most records and dead letters per commit.")
    ] = 50_000
    idle_timeout: Annotated[
        Duration,
        Meta(
            ge=1,
            le=86_400,
            description="Stream time without a new event after which a request is closed.",
        ),
    ] = 120.0
    duplicate_window: Annotated[
        Duration,
        Meta(
            ge=0,
            le=86_400,
            description="Stream time for which a request is remembered beyond idle_timeout, so "
            "that late duplicates are known as such.",
        ),
    ] = 60.0
    max_reread: Annotated[
        int,
        Meta(
            ge=10_000,
            le=20_000_000,
            description="Messages that a start may read again; a request that began longer ago is "
            "closed.",
        ),
    ] = 2_000_000
    envelope: Annotated[
        Literal["auto", "native", "cloudevents", "body"],
        Meta(description="Envelope of the input; auto recognises each message by itself."),
    ] = "auto"
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
            ],
            Annotated[str, Meta(pattern=r"^[^.]+(\.[^.]+)*$")],
        ],
        Meta(
            description="Where home-made JSON events keep the members of a native event, as member "
            "names joined by dots; tried before everything else where set.",
            extra={
                "allowed": "MEMBER=PATH, separated by commas; members are request_id, body, "
                "body_base64, sequence, final, timestamp, attempt, model, instance, "
                "endpoint, status",
                "metavar": "MEMBER=PATH",
            },
        ),
    ] = {}
    response_types: Annotated[
        tuple[Name, ...], Meta(description="CloudEvents types that are responses.")
    ] = ("org.kubeflow.serving.inference.response",)
    label_attributes: Annotated[
        tuple[Annotated[str, Meta(pattern="^[a-z0-9]+$")], ...],
        Meta(
            description="CloudEvents extension attributes to copy into the labels.",
            extra={"allowed": "names of lower-case letters and digits, separated by commas"},
        ),
    ] = ("inferenceservicename", "namespace", "component")
    max_inflated_bytes: Annotated[
        Size,
        Meta(ge=64 << 10, le=1 << 30, description="Most bytes that one message may inflate to."),
    ] = 16 << 20
    max_segment_bytes: Annotated[
        Size,
        Meta(
            ge=1 << 10,
            le=64 << 20,
            description="Most bytes of raw segments that wait for their line end, per request.",
        ),
    ] = 1 << 20
    max_stats_bytes: Annotated[
        Size,
        Meta(ge=1 << 10, le=16 << 20, description="Most bytes of statistics to keep per place."),
    ] = 1 << 20
    log_level: Annotated[Level, Meta(description="Least important log lines to show.")] = "info"
    log_format: Annotated[
        Format, Meta(description="Form of the log; auto is console on a terminal, else json.")
    ] = "auto"
    log_preview: Annotated[
        Size,
        Meta(
            ge=0,
            le=4096,
            description="Bytes of payload to show in log lines about bad payloads. Payloads are "
            "what people wrote: leave it at 0 in production.",
        ),
    ] = 0
    http_address: Annotated[
        str,
        Meta(
            pattern=rf"^(off|{_HOST}:{_PORT})$",
            description="Where /healthz, /readyz and /metrics are served. Port 0 is any free one; "
            "the log says which.",
            extra={
                "allowed": "off, or HOST:PORT with a port up to 65535, and an IPv6 address in "
                "brackets",
                "metavar": "HOST:PORT|off",
            },
        ),
    ] = "0.0.0.0:8080"
    shutdown_timeout: Annotated[
        Duration,
        Meta(ge=1, le=600, description="Longest time that a stop may take before it is cut short."),
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
        """Whether records and offsets are committed together."""
        return self.delivery == "exactly_once"


SettingKind = Literal["text", "choice", "integer", "duration", "size", "moment", "list", "map"]


class Field(Struct, frozen=True):
    """One setting, as the options and the documents need it."""

    name: str
    kind: SettingKind
    type: Any
    default: Any
    description: str
    allowed: str
    examples: str
    metavar: str | None

    @property
    def environment(self) -> str:
        """Name of its environment variable."""
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """Name of its command-line option."""
        return "--" + self.name.replace("_", "-")

    @property
    def expected(self) -> str:
        """What is allowed, with examples of how it is written."""
        return self.allowed + self.examples

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the entries that a map may have; empty if they are for users to choose."""
        if self.kind != "map":
            return ()
        mapping, *_ = get_args(self.type)
        name, _ = get_args(mapping)
        return get_args(name)

    @property
    def default_text(self) -> str:
        """Return the default as a person would write it; empty for none."""
        return _written(self.kind, self.default)


class Problem(Struct, frozen=True):
    """One wrong setting: which, from where, what it was, what it may be. Holds no secret."""

    setting: str
    source: str
    message: str
    given: str | None = None

    def __str__(self) -> str:
        given = "" if self.given is None else f" is {self.given}"
        text = f"{self.setting} ({self.source}){given}: {self.message}"
        return text.encode(errors="backslashreplace").decode()  # Names may be no UTF-8 either.


class SettingsError(Exception):
    """Settings are wrong; all of them are listed."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


PREFIX: Final = "ACCEPTANCE_"
SETTINGS_FILE: Final = "ACCEPTANCE_SETTINGS"
KAFKA_MAPS: Final = ("kafka", "kafka_consumer", "kafka_producer")


def load(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: Path | None,
    *,
    require: Collection[str] = ("bootstrap_servers", "topics"),
) -> Settings:
    """Read the settings: flags before environment, environment before file, file before default.

    Maps are merged key by key. `flags` are by field name; None and an empty tuple mean not given.

    Raises:
        SettingsError: at least one setting is wrong, or one of `require` is missing.

    """
    if file is None and environ.get(SETTINGS_FILE):
        file = Path(environ[SETTINGS_FILE])
    problems: list[Problem] = []
    given: dict[tuple[str, str], _Given] = {}
    for source in (
        _from_file(file, problems),
        _from_environment(environ, problems),
        _from_flags(flags, problems),
    ):
        given.update(((one.setting, one.key), one) for one in source)

    settings = _convert(given.values(), problems)
    wrong = {problem.setting for problem in problems}
    problems += (
        Problem(name, "not given", f"is required; give {fields()[name].allowed}")
        for name in require
        # It may stand in the file that could not be read.
        if not getattr(settings, name) and wrong.isdisjoint((name, _FILE))
    )
    problems += _owned_properties(given.values())
    problems += _topic_problems(settings, given)
    problems += _skip_problems(settings, given)
    if problems:
        raise SettingsError(problems)
    return settings


def moment(text: str, now: int) -> Moment:
    """Read a moment as `start` is written, or as a duration that has passed since.

    Args:
        text: what a person wrote.
        now: milliseconds since 1970.

    Raises:
        ValueError: it is neither.

    """
    try:
        found: Moment = msgspec.convert(_moment(text), Moment)
    except (ValueError, msgspec.ValidationError):
        if text.strip()[-1:].isdigit():  # Without a unit it is no duration that anybody means.
            raise
        days = _DAYS.fullmatch(text)
        seconds = float(days[1]) * 86_400 if days else cast("float", _duration(text))
        return now - round(min(seconds * 1000, now))  # Nothing was before 1970.
    return found


def duration(text: str) -> float:
    """Read a duration as the settings are written, in seconds.

    Raises:
        ValueError: it is none.

    """
    seconds = cast("float", _duration(text))
    if not math.isfinite(seconds):
        raise ValueError(text)
    return seconds


def effective(settings: Settings) -> dict[str, object]:
    """Return the settings for the log, with every credential masked."""
    shown: dict[str, object] = {}
    for name, value in msgspec.structs.asdict(settings).items():
        match value:
            case dict():
                shown[name] = {key: _shown(key, text) for key, text in value.items()}
            case str():
                shown[name] = mask_user_info(value)
            case _:
                shown[name] = value
    return shown


@cache
def fields() -> dict[str, Field]:
    """Return all settings by name, in the order of the documents."""
    types = get_type_hints(Settings, include_extras=True)
    listed = {}
    for info in msgspec.structs.fields(Settings):
        metadata = cast("msgspec.inspect.Metadata", msgspec.inspect.type_info(types[info.name]))
        extra = metadata.extra or {}
        kind: SettingKind = extra.get("kind") or _kind(metadata.type)
        listed[info.name] = Field(
            name=info.name,
            kind=kind,
            type=types[info.name],
            default={} if info.default is msgspec.NODEFAULT else info.default,
            description=(metadata.extra_json_schema or {})["description"],
            allowed=extra.get("allowed") or _allowed(kind, types[info.name], metadata.type),
            examples=_examples(kind, metadata.type),
            metavar=extra.get("metavar"),
        )
    return listed


class _Given(Struct, frozen=True):
    """A value, or one entry of a map, and where it came from."""

    setting: str
    value: object
    source: str
    key: str = ""

    @property
    def name(self) -> str:
        return f"{self.setting}.{self.key}" if self.key else self.setting

    def problem(self, message: str) -> Problem:
        value = ", ".join(map(str, self.value)) if isinstance(self.value, tuple) else self.value
        return Problem(self.name, self.source, message, _shown(self.name, repr(value)))


# Where settings come from


_FILE: Final = "settings"  # What a problem of the file as a whole is about.


def _from_file(path: Path | None, problems: list[Problem]) -> Iterator[_Given]:
    if path is None:
        return
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        _check_bounds(table)
    except (OSError, ValueError, RecursionError) as error:
        problems.append(Problem(_FILE, f"file {path}", f"cannot be read: {_reason(error)}"))
        return
    for name, value in table.items():
        source = f"file {path}, key {name}"
        if name not in fields():
            message = _unknown(name, {name: name for name in fields()})
            problems.append(Problem(name, f"file {path}", message))
        elif fields()[name].kind == "map":
            yield from _map_entries(name, value, source, problems)
        else:
            yield _Given(name, value, source)


_DEEPEST: Final = 32


def _check_bounds(value: object, depth: int = 0) -> None:
    """Refuse what cannot be handled, or even shown, without an error of its own."""
    if depth > _DEEPEST:
        raise ValueError(f"nested more than {_DEEPEST} deep")
    match value:
        case dict() | list():
            for item in value.values() if isinstance(value, dict) else value:
                _check_bounds(item, depth + 1)
        case int() if not -(1 << 63) <= value < 1 << 63:
            raise ValueError("an integer of more than 64 bits")


# Kubernetes describes every Service of the namespace to every container: ours (by its usual name),
# and any other whose name starts with "acceptance", such as acceptance-kafka.
_SERVICE_VARIABLE: Final = re.compile(
    PREFIX + r"(CONSUMER_.*|(.+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?))"
)
# Their own names end in what otherwise says "read it from a file".
_FILE_PROPERTIES: Final = frozenset(
    {
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "sasl.oauthbearer.assertion.private.key.file",
    }
)


def _from_environment(environ: Mapping[str, str], problems: list[Problem]) -> Iterator[_Given]:
    if environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield _Given(
            "bootstrap_servers",
            environ["KAFKA_BOOTSTRAP_SERVERS"],
            "environment KAFKA_BOOTSTRAP_SERVERS",
        )
    # In this order a map as a whole comes before its entries.
    for variable in sorted(environ):
        if (
            variable.startswith(PREFIX)
            and variable != SETTINGS_FILE
            and not _SERVICE_VARIABLE.fullmatch(variable)
        ):
            yield from _from_variable(variable, environ, problems)


def _from_variable(
    variable: str, environ: Mapping[str, str], problems: list[Problem]
) -> Iterator[_Given]:
    value, source = environ[variable], f"environment {variable}"
    found = _setting_of(variable)
    if found is None:
        known = {name: field.environment for name, field in fields().items()}
        name = variable.removeprefix(PREFIX).lower()
        message = _unknown(name, known | {"settings": SETTINGS_FILE})
        problems.append(Problem(variable, "environment", message))
        return
    name, key, from_file = found
    if from_file:
        if variable.removesuffix("_FILE") in environ:
            message = f"is given twice: unset it or {variable.removesuffix('_FILE')}"
            problems.append(Problem(name, source, message))
            return
        try:
            value = Path(value).read_text(encoding="utf-8").removesuffix("\n")
        except (OSError, ValueError) as error:
            message = f"names a file that cannot be read: {_reason(error)}"
            # What is no path may be the secret itself, given in the wrong way.
            given = _shown("" if _leads_somewhere(value) else key, repr(value))
            problems.append(Problem(name, source, message, given))
            return
    if key:
        yield from _map_entries(name, {key: value}, source, problems)
    elif fields()[name].kind == "map":
        yield from _map_entries(name, value, source, problems)
    elif value or fields()[name].kind == "list":  # Empty means unset where it can mean no value.
        yield _Given(name, value, source)


def _leads_somewhere(path: str) -> bool:
    """Tell whether a path goes through a directory that exists below the root."""
    parents = Path(path).parents
    return path.startswith("/") and len(parents) > 1 and parents[-2].is_dir()


def _setting_of(variable: str) -> tuple[str, str, bool] | None:
    """Read a variable's name: setting, key within it, and whether the value lies in a file."""
    name = variable.removeprefix(PREFIX).lower()
    if name in fields():
        return name, "", False
    if name.removesuffix("_file") in fields():
        return name.removesuffix("_file"), "", True
    if name.startswith("kafka_"):
        key = name.removeprefix("kafka_").replace("_", ".")
        from_file = key.endswith(".file") and key not in _FILE_PROPERTIES
        return "kafka", key.removesuffix(".file") if from_file else key, from_file
    return None


def _from_flags(flags: Mapping[str, object], problems: list[Problem]) -> Iterator[_Given]:
    for name, value in flags.items():
        if value is None or value == ():
            continue
        if name not in fields():
            flag = "--" + name.replace("_", "-")
            message = _unknown(name, {name: field.flag for name, field in fields().items()})
            problems.append(Problem(flag, "flag", message))
        elif fields()[name].kind == "map":
            source = "flag -X" if name == "kafka" else f"flag {fields()[name].flag}"
            yield from _map_entries(name, value, source, problems)
        else:
            yield _Given(name, value, f"flag {fields()[name].flag}")


def _map_entries(
    name: str, value: object, source: str, problems: list[Problem]
) -> Iterator[_Given]:
    """Take a map apart: a table, "k=v,k2=v2" as one text, or "k=v" several times."""
    entries: list[tuple[str, object]] = []
    if isinstance(value, Mapping):
        entries += _flattened(value)
    else:
        items = list(_items(value) if isinstance(value, str) else _as_list(value))
        for number, item in enumerate(items, 1):
            key, equals, text = str(item).partition("=")
            if equals and key.strip():
                entries.append((key.strip(), text))
                continue
            which = f"; entry {number} of {len(items)} is not" if len(items) > 1 else ""
            # Without its name, nobody knows whether a Kafka property is a secret.
            given = MASK if name in KAFKA_MAPS else _shown(str(item), repr(item))
            message = f"must be {fields()[name].allowed}{which}"
            problems.append(Problem(name, source, message, given))
    for key, entry in entries:
        setting, shorter_key = _owner(name, key)
        yield _Given(setting, entry, source, shorter_key)


def _flattened(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Join nested tables with dots: TOML reads an unquoted `ssl.ca.location` as three tables."""
    for key, value in table.items():
        match value:
            case Mapping():
                yield from _flattened(value, f"{prefix}{key}.")
            case bool():
                yield prefix + key, str(value).lower()
            case int() | float():
                yield prefix + key, str(value)
            case _:
                yield prefix + key, value


def _owner(name: str, key: str) -> tuple[str, str]:
    """Tell which map an entry of `kafka` is for; no librdkafka property starts like this."""
    for part in ("consumer", "producer"):
        if name == "kafka" and key.startswith(part + "."):
            return f"kafka_{part}", key.removeprefix(part + ".")
    return name, key


def _unknown(name: str, known: Mapping[str, str], kind: str = "setting") -> str:
    """Refuse a name and suggest the nearest known one, as it is written where it was found."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"is no {kind}; did you mean {known[near[0]]}?" if near else f"is no {kind}"


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


# How settings are written


_EXAMPLES: Final[Mapping[SettingKind, tuple[str, ...]]] = {
    "duration": ("250ms", "1s", "2m", "1h"),
    "size": ("512", "64KiB", "1MiB", "1MB"),
}
_NUMBER_OF: Final[Mapping[SettingKind, str]] = {"duration": "seconds", "size": "bytes"}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h)?")
_DAYS: Final = re.compile(r"(\d+(?:\.\d+)?) ?d")  # Of what is past: no setting is as long.
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE: Final = re.compile(r"(\d+) ?([kmg]i?b|b)?", re.IGNORECASE)
_BYTES: Final = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}


def _convert(given: Iterable[_Given], problems: list[Problem]) -> Settings:
    """Convert what was given; what is wrong becomes a problem and keeps its default."""
    values: dict[str, Any] = {}
    for one in given:
        field = fields()[one.setting]
        if not _is_utf8(one):
            problems.append(one.problem("is not UTF-8 text"))
            continue
        if one.key and field.keys and one.key not in field.keys:
            kind = f"member of an event ({', '.join(field.keys)})"  # Only those are a closed list.
            message = _unknown(one.key, {key: key for key in field.keys}, kind)
            problems.append(Problem(one.name, one.source, message))
            continue
        try:
            if one.key:
                entry = msgspec.convert({one.key: one.value}, field.type)
                values.setdefault(one.setting, {}).update(entry)
            else:
                parse = _PARSERS.get(field.kind, _as_it_is)
                values[one.setting] = msgspec.convert(parse(one.value), field.type)
        except (ValueError, msgspec.ValidationError):
            entry_of_text = one.key and not isinstance(one.value, str)
            problems.append(
                one.problem("must be " + ("a text" if entry_of_text else field.expected))
            )
    return Settings(**values)


def _is_utf8(given: _Given) -> bool:
    """Tell whether no text holds a lone surrogate, as bytes of the environment may become."""
    try:
        "".join(map(str, (given.key, *_as_list(given.value)))).encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_it_is(value: object) -> object:
    return value


def _integer(value: object) -> object:
    return int(value) if isinstance(value, str) else value


def _duration(value: object) -> object:
    if isinstance(value, str):
        match = _fullmatch(_DURATION, value)
        # Rounded, so that 0.007 is what a person would have written.
        return round(float(match[1]) * _SECONDS[match[2] or "s"], 6)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(value)
    return value


def _size(value: object) -> object:
    if isinstance(value, str):
        match = _fullmatch(_SIZE, value)
        return int(match[1]) * _BYTES[(match[2] or "b").lower()]
    return value


def _moment(value: object) -> object:
    if isinstance(value, str) and value not in ("earliest", "latest"):
        if value.strip().isdecimal():
            return int(value)
        value = msgspec.convert(value, datetime)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(value)
        return int((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    return value


def _list(value: object) -> object:
    if isinstance(value, list):  # Of the file: a comma there is part of a name or pattern.
        return value
    listed: list[object] = []
    for item in _as_list(value):
        listed += _items(item) if isinstance(item, str) else [item]
    return listed


_PARSERS: Final[Mapping[SettingKind, Callable[[object], object]]] = {
    "integer": _integer,
    "duration": _duration,
    "size": _size,
    "moment": _moment,
    "list": _list,
}


def _fullmatch(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return match


def _as_list(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else [value]


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _kind(described: msgspec.inspect.Type) -> SettingKind:
    match described:
        case msgspec.inspect.LiteralType():
            return "choice"
        case msgspec.inspect.IntType():
            return "integer"
        case msgspec.inspect.VarTupleType():
            return "list"
        case msgspec.inspect.DictType():
            return "map"
        case _:
            return "text"


def _allowed(kind: SettingKind, annotation: Any, described: msgspec.inspect.Type) -> str:
    """Say what the type allows, as an error message and the documents put it."""
    match described:
        case msgspec.inspect.LiteralType():
            literal, *_ = get_args(annotation)  # In the order written; `described` sorts.
            return "one of " + ", ".join(get_args(literal))
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            noun = "an integer" if kind == "integer" else f"a {kind}"
            return f"{noun} from {_written(kind, described.ge)} to {_written(kind, described.le)}"
        case msgspec.inspect.VarTupleType():
            return "names, separated by commas"
        case msgspec.inspect.DictType():
            return "NAME=VALUE, separated by commas"
        case _ if kind == "moment":
            return "earliest, latest, an RFC 3339 time with its zone, or milliseconds since 1970"
        case _:
            return "a text of 1 to 249 characters"


def _examples(kind: SettingKind, described: msgspec.inspect.Type) -> str:
    """Give examples of how a setting is written, none of which its range rules out."""
    if not isinstance(described, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        return ""
    least, most = described.ge or 0, described.le or math.inf
    examples = [
        text
        for text in _EXAMPLES.get(kind, ())
        if least <= cast("float", _PARSERS[kind](text)) <= most
    ]
    return f", such as {', '.join(examples)} or a number of {_NUMBER_OF[kind]}" if examples else ""


def _written(kind: SettingKind, value: Any) -> str:
    """Write a value as a person would."""
    if value is None or kind == "map":
        return ""
    if kind == "duration":
        if 0 < value < 1:
            return f"{round(value * 1000)}ms"
        unit = "s" if not value or value % 60 else "m" if value % 3600 else "h"
        return f"{value / _SECONDS[unit]:g}{unit}"
    if kind == "size":
        shift, unit = next(
            (
                (shift, unit)
                for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB"))
                if value and value % (1 << shift) == 0
            ),
            (0, ""),
        )
        return f"{value >> shift}{unit}"
    return ", ".join(value) if kind == "list" else str(value)


_LONGEST_SHOWN: Final = 200


def _shown(name: str, value: str) -> str:
    """Return a value as a log may show it."""
    if is_secret(name):
        return MASK
    text = mask_user_info(value)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."


# What no setting may do


_COMMITTED_WITH_RECORDS: Final = "offsets are committed only with the records before them"
_NAMED_BY_SETTING: Final = "use the setting"
_OWNED: Final = {
    "bootstrap.servers": f"{_NAMED_BY_SETTING} bootstrap_servers",
    "metadata.broker.list": f"{_NAMED_BY_SETTING} bootstrap_servers",
    "group.id": f"{_NAMED_BY_SETTING} group",
    "auto.offset.reset": f"{_NAMED_BY_SETTING} start",
    "enable.auto.commit": _COMMITTED_WITH_RECORDS,
    "auto.commit.enable": _COMMITTED_WITH_RECORDS,
    "enable.auto.offset.store": _COMMITTED_WITH_RECORDS,
    "enable.partition.eof": "the service finds the end of a partition by itself",
    "transactional.id": f"{_NAMED_BY_SETTING} transactional_id",
    "partitioner": "records are keyed as Java clients key them, so that subscribers can join them",
}
_TRUE: Final = ("true", "t", "1")
_ALL: Final = ("all", "-1")
_PINNED: Final = {
    "enable.idempotence": (_TRUE, "a retry would write a record twice"),
    "acks": (_ALL, "a broker that fails would lose records"),
    "request.required.acks": (_ALL, "a broker that fails would lose records"),
    "isolation.level": (("read_committed",), "aborted responses would be published"),
    "partition.assignment.strategy": (
        ("cooperative-sticky",),
        "a partition that stays must not lose its state because another one moves",
    ),
}
_BREAKS_JSON: Final = re.compile(r'["\\\x00-\x1f]')


def _owned_properties(given: Iterable[_Given]) -> Iterator[Problem]:
    for one in given:
        if one.setting not in KAFKA_MAPS:
            continue
        if one.key in _OWNED:
            yield one.problem(f"is not for users to set: {_OWNED[one.key]}")
        elif one.key in _PINNED and str(one.value).lower() not in _PINNED[one.key][0]:
            values, reason = _PINNED[one.key]
            yield one.problem(f"must be {values[0]}: {reason}")
        elif one.key == "client.id" and _BREAKS_JSON.search(str(one.value)):
            yield one.problem(
                "must hold no quote, backslash or control character: probes go by librdkafka's "
                "statistics, which hold it as it is and could not be read"
            )


_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_TOPIC_RULE: Final = "is no topic name: 1 to 249 letters, digits, '.', '_' or '-'"


def _topic_problems(
    settings: Settings, given: Mapping[tuple[str, str], _Given]
) -> Iterator[Problem]:
    def problem(setting: str, message: str) -> Problem:
        one = given.get((setting, ""))
        return Problem(setting, "default" if one is None else one.source, message)

    outputs = {
        "output_topic": settings.output_topic,
        "dead_letter_topic": settings.dead_letter_topic,
    }
    for setting, topic in outputs.items():
        if not _TOPIC.fullmatch(topic):
            yield problem(setting, f"{topic!r} {_TOPIC_RULE}")
    if settings.output_topic == settings.dead_letter_topic:
        yield problem("dead_letter_topic", f"{settings.output_topic!r} is the output_topic too")
    if len(set(settings.topics)) < len(settings.topics):
        yield problem("topics", "name a topic twice")
    for topic in settings.topics:
        try:
            matches = _matcher(topic)
        except ValueError as error:
            yield problem("topics", str(error))
            continue
        for setting, output in outputs.items():
            if matches(output):
                message = f"{topic!r} is the {setting} too: the service would read what it writes"
                yield problem("topics", message)


def _skip_problems(
    settings: Settings, given: Mapping[tuple[str, str], _Given]
) -> Iterator[Problem]:
    """Refuse messages to skip that nobody reads: somebody has mistyped them."""
    try:
        matchers = [_matcher(topic) for topic in settings.topics]
    except ValueError:
        return  # That is said elsewhere.
    for place in settings.skip:
        topic = place.split(":")[0]
        if matchers and not any(matches(topic) for matches in matchers):
            source = given["skip", ""].source
            yield Problem("skip", source, f"{place!r} is in none of the topics")


_POSIX_CLASSES: Final = {
    "[:alnum:]": "a-zA-Z0-9",
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:upper:]": "A-Z",
}
# librdkafka hands patterns to the C library: these are errors there, or silently match nothing.
_NOT_POSIX: Final = re.compile(r"\\[a-zA-Z]|\(\?|[*+?}][?+]")


def _matcher(topic: str) -> Callable[[str], bool]:
    """Return the test of whether a subscription to the topic or pattern takes in another one."""
    if not topic.startswith("^"):
        if not _TOPIC.fullmatch(topic):
            raise ValueError(f"{topic!r} {_TOPIC_RULE}")
        return topic.__eq__
    if _NOT_POSIX.search(topic):
        raise ValueError(
            f"{topic!r} is no POSIX regular expression: no (?...), no lazy quantifier, no "
            "backslash before a letter (write [0-9] for a digit)"
        )
    translated = topic
    for posix, python in _POSIX_CLASSES.items():
        translated = translated.replace(posix, python)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Of sets that Python would read in another way.
            pattern = re.compile(translated)
    except (re.error, FutureWarning) as error:
        raise ValueError(f"{topic!r} is no regular expression: {error}") from None
    return lambda name: pattern.search(name) is not None
