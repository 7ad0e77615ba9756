"""Paths to members of a JSON object, and the object read along them, each level once."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from consumer.core.bodies.json_text import is_set, loads_tolerantly, raw_members

Path = tuple[str, ...]

_decode: Final = msgspec.json.Decoder().decode
_MAX_NAMED: Final = 128  # Entries of an array that are searched for a name.
_INDEX: Final = re.compile(r"[0-9]{1,5}")
_Level = dict[str, Raw] | list[Raw]


def parse_path(text: str) -> Path:
    """Return the names in a path, which are joined by dots."""
    return tuple(text.split("."))


class EventMembers:
    """The members of one JSON object; of each object on the way, the members are split once.

    A path may lead through a string that holds JSON. In an array, a number selects an entry, and a
    name the `value` of the entry whose `key` or `name` it is, as headers are listed. Names of
    members may have dots themselves, as loggers write them that flatten objects: of two members
    that a path may mean, the one with the shorter first name counts.

    Args:
        top: the members of the object.
        outer: the object that has this one as an entry, where paths are looked up that lead
            nowhere here.

    """

    __slots__ = ("_levels", "_outer")

    def __init__(self, top: dict[str, Raw], outer: "EventMembers | None" = None) -> None:
        self._levels: dict[Path, _Level] = {(): top}
        self._outer = outer

    def first(self, paths: Sequence[Path]) -> Raw | None:
        """Return the first member that is there and is not null."""
        for path in paths:
            if (found := self.at(path)) is not None:
                return found
        return None if self._outer is None else self._outer.first(paths)

    def at(self, path: Path) -> Raw | None:
        """Return the member at a path in this object, if it is there and is not null."""
        return self._at((), path)

    def _at(self, place: Path, names: Path) -> Raw | None:
        """Return the member at a path that begins in the member at a place."""
        level = self._level(place)
        for count in range(1, len(names) + 1):
            name, rest = ".".join(names[:count]), names[count:]
            raw = _entry(level, name)
            if raw is not None and rest:
                raw = self._at((*place, name), rest)
            if raw is not None and is_set(raw):
                return raw
        return None

    def _level(self, place: Path) -> _Level:
        if place not in self._levels:
            raw = _entry(self._level(place[:-1]), place[-1])
            self._levels[place] = {} if raw is None else _split(bytes(raw))
        return self._levels[place]


def _entry(level: _Level, name: str) -> Raw | None:
    if isinstance(level, dict):
        return level.get(name)
    if _INDEX.fullmatch(name):
        return level[int(name)] if int(name) < len(level) else None
    return _named(level, name)


def _named(entries: list[Raw], name: str) -> Raw | None:
    """Return the `value` of the entry whose `key` or `name` is given."""
    for entry in entries[:_MAX_NAMED]:
        members = raw_members(bytes(entry))
        if not isinstance(members, dict):
            continue
        stated = members.get("key", members.get("name"))
        if stated is not None and decoded_text(bytes(stated)) == name:
            return members.get("value")
    return None


def decoded_text(raw: bytes) -> str | None:
    """Return the text of a JSON string; None if it is none."""
    try:
        value = _decode(raw)
    except msgspec.MsgspecError:
        value = loads_tolerantly(raw)
    except RecursionError:
        return None
    return value if isinstance(value, str) else None


def _split(raw: bytes) -> _Level:
    """Return the members or entries of a JSON value, or of the text in it; none of others."""
    if raw.startswith(b'"'):
        raw = (decoded_text(raw) or "").strip().encode("utf-8", "replace")
    level = raw_members(raw) if raw.startswith((b"{", b"[")) else {}
    return level if isinstance(level, dict | list) else {}
