"""The published JSON Schemas (2020-12), made from the structs.

The files in `json/` are for readers without Python. `make format` writes them, and a test fails
if they differ from the structs.
"""

import json
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from schemas.dead_letter import DeadLetter
from schemas.event import ResponseEvent
from schemas.record import SCHEMA_VERSION, PublishedRecord


class _Published(Struct, frozen=True):
    type: type[Struct]
    id: str
    title: str


_PUBLISHED: Final = {
    "acceptance-record": _Published(PublishedRecord, "record", "Acceptance record"),
    "dead-letter": _Published(DeadLetter, "dead-letter", "Dead letter"),
    "response-event": _Published(ResponseEvent, "response-event", "Response event"),
}


def _given(member: str, rule: dict[str, Any]) -> dict[str, Any]:
    return {"required": [member], "properties": {member: rule}}


_BODY: Final = _given("body", {"not": {"type": "null"}})
_BODY_BASE64: Final = _given("body_base64", {"not": {"type": "null"}})
# Not both, and neither only on an end marker or a failure.
_BODY_RULES: Final = {
    "not": {"allOf": [_BODY, _BODY_BASE64]},
    "anyOf": [
        _BODY,
        _BODY_BASE64,
        _given("final", {"const": True}),
        _given("status", {"type": "integer", "minimum": 400}),
    ],
}


def names() -> tuple[str, ...]:
    """Return the names of the published schemas."""
    return tuple(_PUBLISHED)


def path(name: str) -> Path:
    """Return the file of a published schema."""
    return Path(__file__).parent / "json" / f"{name}.schema.json"


def text(name: str) -> str:
    """Return the text of a published schema's file."""
    return json.dumps(schema(name), indent=2) + "\n"


def identifier(name: str) -> str:
    """Return the `$id` of a published schema."""
    return f"urn:acceptance-consumer:{_PUBLISHED[name].id}:{SCHEMA_VERSION}"


def schema(name: str) -> dict[str, Any]:
    """Return a published schema.

    It allows members that it does not name: a new one does not need a new version.
    """
    published = _PUBLISHED[name]
    (_,), components = msgspec.json.schema_components([published.type])
    made = components[published.type.__name__]
    properties = made["properties"]
    if published.type is ResponseEvent:
        required, rules = made["required"], _BODY_RULES
    else:
        required, rules = list(properties), {}  # The service writes every member.
        for described in properties.values():
            described.pop("default", None)
    for member in _members_with_integer_keys(published.type):
        # A key is a string in JSON; JSON Schema has no other way to require an integer.
        for described in properties[member].get("anyOf", [properties[member]]):
            if described["type"] == "object":
                described["propertyNames"] = {"pattern": "^[0-9]+$"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": identifier(name),
        "title": published.title,
        "description": made["description"],
        "type": "object",
        "properties": properties,
        "required": required,
        **rules,
    }


def _members_with_integer_keys(struct: type[Struct]) -> list[str]:
    described = msgspec.inspect.type_info(struct)
    if not isinstance(described, msgspec.inspect.StructType):
        return []
    return [field.encode_name for field in described.fields if _has_integer_keys(field.type)]


def _has_integer_keys(described: msgspec.inspect.Type) -> bool:
    match described:
        case msgspec.inspect.Metadata(inner):
            return _has_integer_keys(inner)
        case msgspec.inspect.UnionType(types):
            return any(map(_has_integer_keys, types))
        case msgspec.inspect.DictType(key_type):
            return isinstance(key_type, msgspec.inspect.IntType)
        case _:
            return False
