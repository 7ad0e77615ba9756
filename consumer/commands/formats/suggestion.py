"""The setting `paths` that would fit an event that no format fits."""

import binascii
import re
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from consumer.core.bodies.body_reader import BodyReader
from consumer.core.bodies.json_text import loads_tolerantly, raw_json
from consumer.core.envelopes.bare import BareBody
from consumer.core.envelopes.format_reader import is_base64_mark
from consumer.core.response_event import Event
from consumer.core.times import event_time

_MAX_DEPTH: Final = 8
_MAX_NODES: Final = 5000
_BODY_STARTS: Final = ("{", "[", "data:", "event:")
_MAX_ID: Final = 200
_STATUSES: Final = range(100, 600)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]{40,}={0,2}")
# Members that say whether a body is base64, as AWS and mitmproxy write them.
_MARKS: Final = ("isbase64encoded", "isbase64", "base64encoded", "base64", "b64", "bodyencoding")
_SEPARATOR: Final = re.compile(r"[^a-z0-9]")

Path = tuple[str, ...]


def _is_id(value: Any) -> bool:
    return type(value) is int or (isinstance(value, str) and 0 < len(value) <= _MAX_ID)


def _is_status(value: Any) -> bool:
    return str(value).isdecimal() and int(value) in _STATUSES


# Names of members that say the same, the surest first; without what is neither letter nor digit.
_NAMES: Final[dict[str, tuple[tuple[str, ...], Callable[[Any], bool]]]] = {
    "request_id": (
        ("requestid", "xrequestid", "reqid", "rid", "traceid", "correlationid", "callid", "id"),
        _is_id,
    ),
    "model": (("model", "modelname", "modelid"), lambda value: isinstance(value, str)),
    "status": (("statuscode", "httpstatus", "status", "code", "responsestatus"), _is_status),
    "timestamp": (
        ("timestamp", "time", "ts", "endtime", "createdat", "starttime", "datetime", "date"),
        lambda value: event_time(value) is not None,
    ),
}


def suggest_paths(body_reader: BodyReader, value: bytes) -> dict[str, str] | None:
    """Return paths for a JSON object, or for the entries of an array in it.

    Args:
        body_reader: reads the bodies.
        value: the value of the message.

    Returns:
        the setting; None if no member holds a response.

    """
    read = loads_tolerantly(value)
    if not isinstance(read, dict | list):
        read = loads_tolerantly(value.partition(b"\n")[0])
    event = loads_tolerantly(bytes(raw_json(read)))  # Without lone surrogates.
    if isinstance(event, list):
        event = next(iter(event), None)
    if not isinstance(event, dict):
        return None
    bare = BareBody(body_reader)
    if (found := _paths(bare, event)) is not None:
        return found
    for path, node in _nodes(event):
        if isinstance(node, list) and node and isinstance(node[0], dict):
            inside = _paths(bare, node[0])
            if inside is not None:
                return {"each": ".".join(path), **_others(event, path), **inside}
    return None


def _paths(bare: BareBody, event: dict[str, Any]) -> dict[str, str] | None:
    for path, node in _nodes(event):
        if path and (member := _body_member(bare, node)) is not None:
            others = _others(event, path)
            mark = _mark(event, path, is_base64=member == "body_base64")
            if mark is not None:
                return {"body": ".".join(path), "base64_if": ".".join(mark), **others}
            return {member: ".".join(path), **others}
    return None


def _body_member(bare: BareBody, node: Any) -> str | None:
    """Return the member of a native event that could hold a value; None if it is not a body."""
    if isinstance(node, dict | list):
        return "body" if _is_response(bare, bytes(raw_json(node))) else None
    if not isinstance(node, str):
        return None
    if node.lstrip().startswith(_BODY_STARTS):
        return "body" if _is_response(bare, node.encode("utf-8", "replace")) else None
    if not _BASE64.fullmatch(node):
        return None
    try:
        inside = b64decode(node, validate=True)
    except (binascii.Error, ValueError):
        return None
    return "body_base64" if _is_response(bare, inside) else None


def _is_response(bare: BareBody, text: bytes) -> bool:
    opened = bare.open(text, text, None)
    if not isinstance(opened, Event):
        return False
    return opened.facts is None or (opened.facts.documents > 0 and not opened.facts.failed)


def _mark(event: dict[str, Any], body: Path, *, is_base64: bool) -> Path | None:
    """Return the path of a member that says, rightly here, whether the body is base64."""
    for path, node in _scalars(event, body):
        if _plain_name(path[-1]) in _MARKS:
            says = is_base64_mark(bytes(raw_json(node)))
            return path if says == is_base64 else None
    return None


def _scalars(event: dict[str, Any], body: Path) -> list[tuple[Path, Any]]:
    """Return the text, numbers and booleans beside the body, with their paths."""
    return [
        (path, node)
        for path, node in _nodes(event)
        if path[: len(body)] != body and isinstance(node, str | int | float)
    ]


def _others(event: dict[str, Any], body: Path) -> dict[str, str]:
    """Return the paths of the members beside the body that are known by their names."""
    found = {}
    scalars = _scalars(event, body)
    for member, (names, fits) in _NAMES.items():
        ranked = [
            (names.index(name), number, path)
            for number, (path, node) in enumerate(scalars)
            for name in (_plain_name(path[-1]), _plain_name(path[-1].rpartition(".")[2]))
            if name in names and fits(node)
        ]
        if ranked:
            found[member] = ".".join(min(ranked)[2])
    return found


def _plain_name(name: str) -> str:
    return _SEPARATOR.sub("", name.lower())


def _nodes(event: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Return an iterator over a value and all members in it, the outer ones first."""
    waiting: deque[tuple[Path, Any]] = deque([((), event)])
    for _ in range(_MAX_NODES):
        if not waiting:
            return
        path, node = waiting.popleft()
        yield path, node
        inside = node
        if isinstance(node, str) and node.lstrip().startswith("{"):
            inside = loads_tolerantly(node.encode("utf-8", "replace"))
        if isinstance(inside, dict) and len(path) < _MAX_DEPTH:
            waiting += (((*path, name), member) for name, member in inside.items())
