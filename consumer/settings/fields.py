"""Describes each setting for the options, the error messages and the documents."""

import math
from functools import cache
from typing import Any, cast, get_args, get_type_hints

import msgspec
from msgspec import Struct

from consumer.settings.settings import Settings
from consumer.settings.values import EXAMPLES, SettingKind, parse, write

PREFIX = "ACCEPTANCE_"


class Field(Struct, frozen=True):
    """One setting."""

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
        """Allowed values, with examples of how to write them."""
        return self.allowed + self.examples

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the entries that a map may have; empty if users choose them."""
        if self.kind != "map":
            return ()
        mapping, *_ = get_args(self.type)
        name, _ = get_args(mapping)
        return get_args(name)

    @property
    def default_text(self) -> str:
        """The default as a person would write it; empty without one."""
        return write(self.kind, self.default)


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
    """Describe the values that the type allows."""
    match described:
        case msgspec.inspect.LiteralType():
            literal, *_ = get_args(annotation)  # In the order written; `described` sorts.
            return "one of " + ", ".join(get_args(literal))
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            noun = "an integer" if kind == "integer" else f"a {kind}"
            return f"{noun} from {write(kind, described.ge)} to {write(kind, described.le)}"
        case msgspec.inspect.VarTupleType():
            return "names, separated by commas"
        case msgspec.inspect.DictType():
            return "NAME=VALUE, separated by commas"
        case _ if kind == "moment":
            return "earliest, latest, an RFC 3339 time with its zone, or milliseconds since 1970"
        case _:
            return "a string of 1 to 249 characters"


def _examples(kind: SettingKind, described: msgspec.inspect.Type) -> str:
    """Return examples of how to write a setting, each within its range."""
    if not isinstance(described, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        return ""
    minimum, maximum = described.ge or 0, described.le or math.inf
    examples = [
        text
        for text in EXAMPLES.get(kind, ())
        if minimum <= cast("float", parse(kind, text)) <= maximum
    ]
    unit = "seconds" if kind == "duration" else "bytes"
    return f", such as {', '.join(examples)} or a number of {unit}" if examples else ""
