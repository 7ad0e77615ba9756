"""The JSON places that adapters declare: parsed once, and found in each document.

A document's decoder keeps the member at which a place begins as raw JSON; what lies below that
member is decoded only where it is there, which is rarely.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from consumer.core.bodies.json_text import ABSENT, NULL, decode_members, is_set


class PlaceError(ValueError):
    """An adapter declares a place that cannot be kept."""


class Place(Struct, frozen=True):
    """A declared place below the attribute that holds its first member."""

    name: str
    first: str | None  # The first of the members below; None if a pattern stands there.
    path: tuple[str, ...]  # Members below the first one.
    pattern: tuple[str, str] | None  # Prefix and suffix of the last members, around a `*`.
    part: str = ""  # The longer of these, which stands in the name of each of them.

    def find(self, value: Raw | dict[str, Raw]) -> bytes | None:
        """Return the JSON at the place; None if it is absent or null."""
        for name in self.path:
            members = _members(value)
            if name not in members:
                return None
            value = members[name]
        if self.pattern is not None:
            prefix, suffix = self.pattern
            kept = {
                name: member
                for name, member in _members(value).items()
                if name.endswith(suffix) and name.startswith(prefix) and is_set(member)
            }
            return msgspec.json.encode(kept) if kept else None
        text = bytes(value) if isinstance(value, Raw) else b""
        return text if text and text != NULL else None


class PlacesOfLevel:
    """The places of one level: of a document, or of each of its choices.

    Args:
        known: members that every struct of the level has.
        known_objects: those of them below which a place may lie.

    Attributes:
        attributes: attribute that holds each further member at which a place begins.
        places: the places below each attribute.

    """

    def __init__(self, known: Sequence[str], known_objects: Sequence[str] = ()) -> None:
        self._known = known
        self._known_objects = known_objects
        self.attributes: dict[str, str] = {}
        self.places: dict[str, list[Place]] = {}

    def add(self, name: str, path: str) -> None:
        """Add a place.

        Args:
            name: the place as declared.
            path: its path below the level.

        Raises:
            PlaceError: the place is not of the form that the protocol describes.

        """
        first, *rest = path.split(".")
        pattern = None
        if rest and rest[-1].count("*") == 1:
            prefix, _, suffix = rest.pop().partition("*")
            pattern = prefix, suffix
        if not all([first, *rest]) or "*" in "".join([first, *rest]) or "[" in path:
            raise PlaceError(
                f"place {name!r}: expected members joined by dots, such as a.b or a.b*"
            )
        if first not in self._known:
            attribute = self.attributes.setdefault(first, f"place_{len(self.attributes)}")
        elif first in self._known_objects and path != first:
            attribute = first
        else:
            raise PlaceError(f"place {name!r}: {first!r} is a member of every response")
        self.places.setdefault(attribute, []).append(
            Place(
                name,
                rest[0] if rest else None,
                tuple(rest),
                pattern,
                max(pattern, key=len) if pattern else "",
            )
        )

    def members(self) -> dict[str, str]:
        """Return the attribute of each member that is decoded."""
        return {**{name: name for name in self._known}, **self.attributes}

    def raw_fields(self) -> list[tuple[str, Any, Any]]:
        """Return the further members as fields that keep raw JSON."""
        return [(a, Raw, field(default=ABSENT, name=name)) for name, a in self.attributes.items()]

    def null_fields(self) -> list[tuple[str, Any, Any]]:
        """Return the further members as fields that must be null."""
        return [(a, None, field(default=None, name=name)) for name, a in self.attributes.items()]


def _members(value: Raw | dict[str, Raw]) -> dict[str, Raw]:
    if isinstance(value, dict):
        return value
    try:
        return decode_members(value)
    except (msgspec.MsgspecError, RecursionError):
        return {}
