"""Reads the settings from flags, the environment and a file, and checks them together."""

import difflib
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from consumer.core.redaction import MASK
from consumer.settings.event_paths import path_problems
from consumer.settings.fields import PREFIX, fields
from consumer.settings.kafka_properties import (
    FILE_PROPERTIES,
    KAFKA_MAPS,
    refusal,
    split_client,
)
from consumer.settings.settings import Settings
from consumer.settings.topic_names import check_name, matcher
from consumer.settings.values import as_list, masked, parse, split_list

SETTINGS_FILE: Final = f"{PREFIX}SETTINGS"
_FILE: Final = "settings"  # The name of the file itself in a problem.
_MAX_DEPTH: Final = 32
# Kubernetes describes every Service of the namespace to every container: the service's own (by its
# usual name), and any other whose name starts with "acceptance", such as acceptance-kafka.
_SERVICE_VARIABLE: Final = re.compile(
    PREFIX + r"(CONSUMER_.*|(.+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?))"
)


class Problem(Struct, frozen=True):
    """One wrong setting, without any secret.

    Attributes:
        setting: its name.
        source: the place that it comes from.
        message: what is wrong, and which values are allowed.
        given: the wrong value, where it can be shown.

    """

    setting: str
    source: str
    message: str
    given: str | None = None

    def __str__(self) -> str:
        given = "" if self.given is None else f" is {self.given}"
        text = f"{self.setting} ({self.source}){given}: {self.message}"
        return text.encode(errors="backslashreplace").decode()  # A name may not be UTF-8 either.


class SettingsError(Exception):
    """Settings are wrong; the message lists all of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class _Given(Struct, frozen=True):
    """A value, or one entry of a map, and the source that it comes from."""

    setting: str
    value: object
    source: str
    key: str = ""

    @property
    def name(self) -> str:
        return f"{self.setting}.{self.key}" if self.key else self.setting

    def problem(self, message: str) -> Problem:
        value = ", ".join(map(str, self.value)) if isinstance(self.value, tuple) else self.value
        return Problem(self.name, self.source, message, masked(self.name, repr(value)))


def load(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: Path | None,
    *,
    require: Collection[str] = ("bootstrap_servers", "topics"),
) -> Settings:
    """Read the settings: flags before environment, environment before file, file before default.

    Maps are merged key by key.

    Args:
        flags: by name of the setting; None and an empty tuple mean not given.
        environ: the environment variables.
        file: a TOML file; by default the one that the environment names.
        require: settings that must be given.

    Raises:
        SettingsError: at least one setting is wrong, or one of `require` is missing.

    """
    if file is None and environ.get(SETTINGS_FILE):
        file = Path(environ[SETTINGS_FILE])
    found = [*_from_file(file), *_from_environment(environ), *_from_flags(flags)]
    problems = [one for one in found if isinstance(one, Problem)]
    given = {(one.setting, one.key): one for one in found if isinstance(one, _Given)}
    settings = _convert(given.values(), problems)
    wrong = {problem.setting for problem in problems}
    problems += (
        Problem(name, "not given", f"is required; give {fields()[name].allowed}")
        for name in require
        # It may stand in the file that could not be read.
        if not getattr(settings, name) and wrong.isdisjoint((name, _FILE))
    )
    problems += (
        one.problem(message)
        for one in given.values()
        if one.setting in KAFKA_MAPS and (message := refusal(one.key, str(one.value)))
    )
    sources = {name: one.source for (name, key), one in given.items() if not key}
    problems += (
        Problem(setting, sources.get(setting, "default"), message)
        for setting, message in _topic_problems(settings)
    )
    problems += (
        Problem(
            "paths",
            next(one.source for (name, _), one in given.items() if name == "paths"),
            message,
        )
        for message in path_problems(dict(settings.paths.items()), settings.envelope)
    )
    if problems:
        raise SettingsError(problems)
    return settings


# Sources


_Found = Iterator[_Given | Problem]


def _from_file(path: Path | None) -> _Found:
    if path is None:
        return
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        _check_bounds(table)
    except (OSError, ValueError, RecursionError) as error:
        yield Problem(_FILE, f"file {path}", f"cannot be read: {_reason(error)}")
        return
    for name, value in table.items():
        source = f"file {path}, key {name}"
        if name not in fields():
            message = _unknown(name, {name: name for name in fields()})
            yield Problem(name, f"file {path}", message)
        elif fields()[name].kind == "map":
            yield from _map_entries(name, value, source)
        else:
            yield _Given(name, value, source)


def _check_bounds(value: object, depth: int = 0) -> None:
    """Refuse values that could not be handled, or even shown, without an error of their own."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} deep")
    match value:
        case dict() | list():
            for item in value.values() if isinstance(value, dict) else value:
                _check_bounds(item, depth + 1)
        case int() if not -(1 << 63) <= value < 1 << 63:
            raise ValueError("an integer of more than 64 bits")


def _from_environment(environ: Mapping[str, str]) -> _Found:
    servers = "KAFKA_BOOTSTRAP_SERVERS"
    if environ.get(servers):
        yield _Given("bootstrap_servers", environ[servers], f"environment {servers}")
    # In this order a map as a whole comes before its entries.
    for variable in sorted(environ):
        if (
            variable.startswith(PREFIX)
            and variable != SETTINGS_FILE
            and not _SERVICE_VARIABLE.fullmatch(variable)
        ):
            yield from _from_variable(variable, environ)


def _from_variable(variable: str, environ: Mapping[str, str]) -> _Found:
    value, source = environ[variable], f"environment {variable}"
    found = _setting_of(variable)
    if found is None:
        known = {name: field.environment for name, field in fields().items()}
        name = variable.removeprefix(PREFIX).lower()
        yield Problem(variable, "environment", _unknown(name, known | {_FILE: SETTINGS_FILE}))
        return
    name, key, from_file = found
    if from_file:
        if variable.removesuffix("_FILE") in environ:
            message = f"is given twice: unset it or {variable.removesuffix('_FILE')}"
            yield Problem(name, source, message)
            return
        try:
            value = Path(value).read_text(encoding="utf-8").removesuffix("\n")
        except (OSError, ValueError) as error:
            # A value that is not a path may be the secret itself, given in the wrong way.
            given = masked("" if _is_plausible_path(value) else key, repr(value))
            message = f"names a file that cannot be read: {_reason(error)}"
            yield Problem(name, source, message, given)
            return
    if key:
        yield from _map_entries(name, {key: value}, source)
    elif fields()[name].kind == "map":
        yield from _map_entries(name, value, source)
    elif value or fields()[name].kind == "list":  # Empty means unset where it can mean no value.
        yield _Given(name, value, source)


def _is_plausible_path(path: str) -> bool:
    """Return whether a path leads through a directory that exists below the root."""
    parents = Path(path).parents
    return path.startswith("/") and len(parents) > 1 and parents[-2].is_dir()


def _setting_of(variable: str) -> tuple[str, str, bool] | None:
    """Return the setting that a variable names, the key within it, and whether a file holds it."""
    name = variable.removeprefix(PREFIX).lower()
    if name in fields():
        return name, "", False
    if name.removesuffix("_file") in fields():
        return name.removesuffix("_file"), "", True
    if name.startswith("kafka_"):
        key = name.removeprefix("kafka_").replace("_", ".")
        from_file = key.endswith(".file") and key not in FILE_PROPERTIES
        return "kafka", key.removesuffix(".file") if from_file else key, from_file
    return None


def _from_flags(flags: Mapping[str, object]) -> _Found:
    for name, value in flags.items():
        if value is None or value == ():
            continue
        if name not in fields():
            flag = "--" + name.replace("_", "-")
            known = {name: field.flag for name, field in fields().items()}
            yield Problem(flag, "flag", _unknown(name, known))
        elif fields()[name].kind == "map":
            source = "flag -X" if name == "kafka" else f"flag {fields()[name].flag}"
            yield from _map_entries(name, value, source)
        else:
            yield _Given(name, value, f"flag {fields()[name].flag}")


def _map_entries(name: str, value: object, source: str) -> _Found:
    """Return the entries of a map: a table, "k=v,k2=v2" as one string, or "k=v" several times."""
    entries: list[tuple[str, object]] = []
    if isinstance(value, Mapping):
        entries += _flattened(value)
    else:
        items = list(split_list(value) if isinstance(value, str) else as_list(value))
        for number, item in enumerate(items, 1):
            key, equals, text = str(item).partition("=")
            if equals and key.strip():
                entries.append((key.strip(), text))
                continue
            which = f"; entry {number} of {len(items)} is not" if len(items) > 1 else ""
            # Without its name, a Kafka property may be a secret.
            given = MASK if name in KAFKA_MAPS else masked(str(item), repr(item))
            yield Problem(name, source, f"must be {fields()[name].allowed}{which}", given)
    for key, entry in entries:
        setting, property_name = split_client(name, key)
        yield _Given(setting, entry, source, property_name)


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


def _unknown(name: str, known: Mapping[str, str], kind: str = "setting") -> str:
    """Refuse a name, and suggest the nearest known one as it is written in the same source."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"is not a {kind}" + (f"; did you mean {known[near[0]]}?" if near else "")


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


# Checks


_OUTPUTS: Final = ("output_topic", "dead_letter_topic")
_Matcher = Callable[[str], bool]
_TopicProblems = Iterator[tuple[str, str]]  # Names of settings, and what is wrong.


def _convert(given: Iterable[_Given], problems: list[Problem]) -> Settings:
    """Convert the given values; a wrong one becomes a problem and keeps its default."""
    values: dict[str, Any] = {}
    for one in given:
        field = fields()[one.setting]
        if not _is_utf8(one):
            problems.append(one.problem("is not UTF-8 text"))
        elif one.key and field.keys and one.key not in field.keys:
            kind = f"member of an event ({', '.join(field.keys)})"  # The only closed list of keys.
            message = _unknown(one.key, {key: key for key in field.keys}, kind)
            problems.append(Problem(one.name, one.source, message))
        else:
            try:
                if one.key:
                    entry = msgspec.convert({one.key: one.value}, field.type)
                    values.setdefault(one.setting, {}).update(entry)
                else:
                    values[one.setting] = msgspec.convert(parse(field.kind, one.value), field.type)
            except (ValueError, msgspec.ValidationError):
                is_string = not one.key or isinstance(one.value, str)
                problems.append(
                    one.problem(f"must be {field.expected if is_string else 'a string'}")
                )
    return Settings(**values)


def _is_utf8(given: _Given) -> bool:
    """Return whether no string has a lone surrogate, which bytes of the environment may become."""
    try:
        "".join(map(str, (given.key, *as_list(given.value)))).encode()
    except UnicodeEncodeError:
        return False
    return True


def _topic_problems(settings: Settings) -> _TopicProblems:
    """Return which setting names a wrong topic, and what is wrong."""
    for setting in _OUTPUTS:
        try:
            check_name(getattr(settings, setting))
        except ValueError as error:
            yield setting, str(error)
    if settings.output_topic == settings.dead_letter_topic:
        yield "dead_letter_topic", f"{settings.output_topic!r} is also the output_topic"
    if len(set(settings.topics)) < len(settings.topics):
        yield "topics", "must not name a topic twice"
    matchers = []
    for topic in settings.topics:
        try:
            matchers.append(matcher(topic))
        except ValueError as error:
            yield "topics", str(error)
        else:
            yield from _loop_problems(settings, topic, matchers[-1])
    if matchers and len(matchers) == len(settings.topics):
        yield from _skip_problems(settings, matchers)


def _loop_problems(settings: Settings, topic: str, matches: _Matcher) -> _TopicProblems:
    for setting in _OUTPUTS:
        if matches(getattr(settings, setting)):
            message = f"{topic!r} includes the {setting}: the service would read its own output"
            yield "topics", message


def _skip_problems(settings: Settings, matchers: list[_Matcher]) -> _TopicProblems:
    """Refuse messages of other topics: with a mistyped topic, the service would crash again."""
    for place in settings.skip:
        topic = place.split(":")[0]
        if not any(matches(topic) for matches in matchers):
            yield "skip", f"{place!r} is not a message of any of the topics"
