"""Events of other shapes: JSON whose members have the meaning of a native event's."""

from collections.abc import Mapping
from typing import Any

from consumer.core.bodies.body_reader import BOM_AND_SPACE
from consumer.core.bodies.json_text import loads_tolerantly, raw_json
from consumer.core.envelopes.native import NativeEnvelope
from consumer.core.response_event import Opened


class MappedEnvelope:
    """Reads events of other shapes as native events.

    Args:
        native: reads the native event.
        paths: place of each member of a native event, as member names joined by dots.

    """

    def __init__(self, native: NativeEnvelope, paths: Mapping[str, str]) -> None:
        self._native = native
        self._paths = {member: path.split(".") for member, path in paths.items()}

    def open(self, value: bytes) -> Opened | None:
        """Read one event; None if it does not have the mapped request id."""
        text = value.lstrip(BOM_AND_SPACE)
        if not text.startswith(b"{"):
            return None
        event = loads_tolerantly(text)
        members = {member: _at(event, path) for member, path in self._paths.items()}
        members = {member: found for member, found in members.items() if found is not None}
        if "request_id" not in members:
            return None
        if type(members["request_id"]) is int:
            members["request_id"] = str(members["request_id"])
        return self._native.open(bytes(raw_json(members)))


def _at(value: Any, path: list[str]) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value
