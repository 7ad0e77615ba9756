"""CloudEvents 1.0 as they come over Kafka: binary, structured, and batched by HTTP bridges.

Follows the Kafka protocol binding and the JSON format of CloudEvents 1.0.2, and accepts what the
field makes of them: KServe labels a response with the content type of its request, and gives a
request and its response one id; older producers send version 0.3; some send no content type.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from consumer.core.bodies.body_reader import BOM_AND_SPACE, BodyReader
from consumer.core.bodies.encoding import inflate
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.json_text import is_set, loads_tolerantly, raw_members
from consumer.core.message import Headers, header, header_text, trace_of
from consumer.core.redaction import without_secrets
from consumer.core.response_event import BadEvent, Event, EventKind, Opened, RequestContext
from consumer.core.times import UNSET_TIMES, event_time
from schemas import BadPayloadReason, IncompleteReason, OddMember, SkipReason

_REQUIRED: Final = ("specversion", "id", "source", "type")
_VERSIONS: Final = ("1.0", "0.3")
_PREFIX: Final = "ce_"
_FIRST_ERROR_STATUS: Final = 400
_STATUS_DIGITS: Final = 3
_LOCAL: Final = ("http://localhost", "https://localhost", "http://127.0.0.1", "http://[::1]")


class CloudEvents:
    """Reads CloudEvents and the response inside.

    Args:
        body_reader: reads the bodies.
        response_types: event types that carry a response.
        label_attributes: extension attributes that become labels.
        max_inflated_bytes: maximum size of a body after its compression is undone.

    """

    def __init__(
        self,
        body_reader: BodyReader,
        response_types: Iterable[str],
        label_attributes: Iterable[str],
        max_inflated_bytes: int,
    ) -> None:
        self._body_reader = body_reader
        self._response_types = frozenset(response_types)
        self._label_attributes = tuple(label_attributes)
        self._max_inflated_bytes = max_inflated_bytes

    def open_binary(self, headers: Headers, value: bytes) -> Opened | None:
        """Read a binary CloudEvent; None if the headers are not those of one."""
        attributes = _header_attributes(headers)
        if not all(name in attributes for name in _REQUIRED):
            return None
        if (refused := self._refused(attributes)) is not None:
            return refused
        return self._open(attributes, value, value, header(headers, "content-encoding"))

    def open_structured(self, value: bytes, *, labelled: bool) -> Opened | list[Opened] | None:
        """Read a structured CloudEvent or a batch; None if the value does not look like one.

        Args:
            value: the JSON text.
            labelled: whether the content type says that it is one, so that it must be one.

        """
        members = raw_members(value.lstrip(BOM_AND_SPACE))
        if isinstance(members, list):
            return self._open_batch(members, labelled=labelled)
        if isinstance(members, BadPayloadReason):
            return _not_an_event(members) if labelled else None
        if not labelled and not _is_event(members):
            return None
        return self._open_members(members, value)

    def _open_batch(self, entries: list[Raw], *, labelled: bool) -> Opened | list[Opened] | None:
        if not entries:
            return SkipReason.EMPTY_BATCH
        opened: list[Opened] = []
        for entry in map(bytes, entries):
            members = raw_members(entry)
            if isinstance(members, dict) and (labelled or _is_event(members)):
                opened.append(self._open_members(members, entry))
            elif labelled:
                problem = "an entry of the batch is not an object"
                opened.append(BadEvent(BadPayloadReason.INVALID_CLOUDEVENT, problem))
            else:
                return None
        return opened

    def _open_members(self, members: dict[str, Raw], value: bytes) -> Opened:
        data, encoded = (_popped(members, name) for name in ("data", "data_base64"))
        attributes = {name: text for name, raw in members.items() if (text := _text(raw))}
        if (refused := self._refused(attributes)) is not None:
            return refused
        content = attributes.get("datacontenttype")
        if encoded is not None:
            if data is not None:
                problem = "data and data_base64 are both set"
                return BadEvent(BadPayloadReason.INVALID_CLOUDEVENT, problem, attributes["id"])
            return self._open_base64(attributes, _text(encoded), value)
        if data is None:
            return self._open(attributes, b"", value, None)
        if attributes.get("datacontentencoding") == "base64":  # Version 0.3.
            return self._open_base64(attributes, _text(data), value)
        if bytes(memoryview(data)[:1]) == b'"':
            if content is None or _is_json(content):
                # With a JSON content type, a string is that string and not a document.
                return self._open(attributes, bytes(data), value, None)
            return self._open(attributes, (_text(data) or "").encode(), value, None)
        return self._open(attributes, bytes(data), value, None)

    def _open_base64(self, attributes: dict[str, str], text: str | None, value: bytes) -> Opened:
        try:
            body = b64decode(text or "", validate=True)
        except (binascii.Error, ValueError):
            problem = "data_base64 is not valid base64"
            return BadEvent(BadPayloadReason.INVALID_BASE64, problem, attributes["id"])
        return self._open(attributes, body, value, None)

    def _refused(self, attributes: Mapping[str, str]) -> SkipReason | BadEvent | None:
        """Return why an event is not a response, or what is wrong with it, or None."""
        for name in _REQUIRED:
            if not attributes.get(name):
                return BadEvent(BadPayloadReason.INVALID_CLOUDEVENT, f"{name} is missing or empty")
        if attributes["specversion"] not in _VERSIONS:
            problem = "specversion is neither 1.0 nor 0.3"
            return BadEvent(BadPayloadReason.INVALID_CLOUDEVENT, problem)
        kind = attributes["type"]
        if kind not in self._response_types:
            is_request = kind.endswith(".request")
            return SkipReason.REQUEST_EVENT if is_request else SkipReason.UNRELATED_EVENT
        return None

    def _open(
        self, attributes: Mapping[str, str], body: bytes, value: bytes, encoding: str | None
    ) -> Opened:
        facts = ResponseFacts()
        plain = inflate(body, encoding, self._max_inflated_bytes)
        reason = self._body_reader.fold_body(facts, plain) if isinstance(plain, bytes) else plain
        stated, code = attributes.get("time", ""), attributes.get("statuscode", "")
        time, status = event_time(stated), _status(code)
        odd = list[OddMember]()
        if time is None and stated not in UNSET_TIMES:
            odd.append(OddMember.TIMESTAMP)
        if status is None and code:
            odd.append(OddMember.STATUS)
        failed = status is not None and status >= _FIRST_ERROR_STATUS
        if isinstance(reason, SkipReason):
            return reason
        if isinstance(reason, BadPayloadReason) and not failed:
            return BadEvent(reason, None, attributes["id"])
        return Event(
            EventKind.WHOLE,
            attributes["source"],
            attributes["id"],
            value,
            facts=facts,
            incomplete=reason if isinstance(reason, IncompleteReason) else None,
            time=time,
            failed=failed,
            context=self._context(attributes),
            odd=odd,
        )

    def _context(self, attributes: Mapping[str, str]) -> RequestContext:
        source = attributes["source"]
        labels = {name: attributes[name] for name in self._label_attributes if name in attributes}
        return RequestContext(
            instance=None if source.startswith(_LOCAL) else without_secrets(source),
            endpoint=without_secrets(attributes.get("endpoint")),
            labels=labels or None,
            traceparent=trace_of([("traceparent", attributes.get("traceparent"))]),
        )


def is_structured(content_type: str | None) -> bool:
    """Return whether a content type is that of a structured CloudEvent or of a batch."""
    return content_type is not None and content_type.lower().startswith("application/cloudevents")


def _header_attributes(headers: Headers) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for key, value in headers:
        name = key.lower()
        if name.startswith(_PREFIX) and (text := header_text(value)):
            attributes.setdefault(name.removeprefix(_PREFIX), text)
        elif name == "traceparent" and (text := trace_of([(key, value)])):
            attributes.setdefault(name, text)
    return attributes


def _is_event(members: Mapping[str, Raw]) -> bool:
    return all(name in members for name in _REQUIRED)


def _not_an_event(reason: BadPayloadReason) -> BadEvent:
    if reason is BadPayloadReason.UNRECOGNISED_SHAPE:
        return BadEvent(BadPayloadReason.INVALID_CLOUDEVENT, "the value is not an object")
    return BadEvent(reason)


def _popped(members: dict[str, Raw], name: str) -> Raw | None:
    """Remove and return a member; null means unset."""
    raw = members.pop(name, None)
    return raw if raw is not None and is_set(raw) else None


def _text(raw: Raw) -> str | None:
    """Return an attribute as text; null means unset, integers and booleans become text."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        value = loads_tolerantly(bytes(raw))
    except RecursionError:
        return None
    if isinstance(value, BadPayloadReason):
        return None
    if isinstance(value, str):
        return header_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else None


def _is_json(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    return media.endswith(("/json", "+json"))


def _status(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _STATUS_DIGITS else None
