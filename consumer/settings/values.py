"""How values of settings are written: durations, sizes, moments, lists."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from consumer.core.redaction import MASK, is_secret, mask_user_info
from consumer.core.times import LAST_MS

SettingKind = Literal["text", "choice", "integer", "duration", "size", "moment", "list", "map"]
Duration = Annotated[float, Meta(extra={"kind": "duration"})]  # Seconds.
Size = Annotated[int, Meta(extra={"kind": "size"})]  # Bytes.
# A smaller number would be seconds, read as a day in 1970.
Moment = Literal["earliest", "latest"] | Annotated[int, Meta(ge=100_000_000_000, le=LAST_MS)]

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h)?")
_DAYS: Final = re.compile(r"(\d+(?:\.\d+)?) ?d")  # Only of an age: no setting is as long.
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DAY_S: Final = 86_400
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
_MAX_SHOWN: Final = 200
EXAMPLES: Final[Mapping[SettingKind, tuple[str, ...]]] = {
    "duration": ("250ms", "1s", "2m", "1h"),
    "size": ("512", "64KiB", "1MiB", "1MB"),
}


def parse(kind: SettingKind, value: object) -> object:
    """Convert a value as a person writes it to one that msgspec converts to the setting's type.

    Raises:
        ValueError: the text is not of this kind.

    """
    parser = _PARSERS.get(kind)
    return value if parser is None else parser(value)


def parse_duration(text: str) -> float:
    """Return the seconds of a duration.

    Raises:
        ValueError: the text is not a duration.

    """
    return _finite(_seconds(text))


def parse_moment(text: str, now_ms: int) -> Moment:
    """Return a moment that is written as in the setting `start`, or as a duration before now.

    Args:
        text: the moment.
        now_ms: milliseconds since 1970.

    Raises:
        ValueError: the text is neither.

    """
    try:
        moment: Moment = msgspec.convert(_moment(text), Moment)
    except (ValueError, msgspec.ValidationError):
        if text.strip()[-1:].isdigit():  # A number without a unit is hardly meant as a duration.
            raise
        days = _DAYS.fullmatch(text)
        age_s = float(days[1]) * _DAY_S if days else _seconds(text)
        return now_ms - round(min(age_s * 1000, now_ms))  # No moment is before 1970.
    return moment


def split_list(text: str) -> list[str]:
    """Return the items of a list that is separated by commas."""
    return [item.strip() for item in text.split(",") if item.strip()]


def as_list(value: object) -> Iterable[object]:
    """Return the items of a list, or a single value as the only item."""
    return value if isinstance(value, list | tuple) else [value]


def write(kind: SettingKind, value: Any) -> str:
    """Return a value as a person would write it; nothing for None and for maps."""
    if value is None or kind == "map":
        return ""
    if kind == "duration":
        if 0 < value < 1:
            return f"{round(value * 1000)}ms"
        unit = "s" if not value or value % 60 else "m" if value % 3600 else "h"
        return f"{value / _SECONDS[unit]:g}{unit}"
    if kind == "size":
        for unit in ("GiB", "MiB", "KiB"):
            if value and value % _BYTES[unit.lower()] == 0:
                return f"{value // _BYTES[unit.lower()]}{unit}"
    return ", ".join(value) if kind == "list" else str(value)


def masked(name: str, value: str) -> str:
    """Return a value as a log may show it: without credentials, and not too long."""
    if is_secret(name):
        return MASK
    text = mask_user_info(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def _seconds(text: str) -> float:
    match = _full_match(_DURATION, text)
    # Rounded, so that 0.007 is what a person would have written.
    return round(float(match[1]) * _SECONDS[match[2] or "s"], 6)


def _integer(value: object) -> object:
    return int(value) if isinstance(value, str) else value


def _duration(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    return _finite(value) if isinstance(value, float) else value


def _size(value: object) -> object:
    if isinstance(value, str):
        match = _full_match(_SIZE, value)
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
    for item in as_list(value):
        listed += split_list(item) if isinstance(item, str) else [item]
    return listed


_PARSERS: Final[Mapping[SettingKind, Callable[[object], object]]] = {
    "integer": _integer,
    "duration": _duration,
    "size": _size,
    "moment": _moment,
    "list": _list,
}


def _full_match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return match


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(value)
    return value
