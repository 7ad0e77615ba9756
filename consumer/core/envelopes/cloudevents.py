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
from msgspec import Raw, Struct

from consumer.core.bodies.body_reader import BodyReader
from consumer.core.bodies.encoding import inflate
from consumer.core.bodies.json_text import is_set, loads_tolerantly, raw_members
from consumer.core.bodies.sse import looks_like_sse
from consumer.core.envelopes.member_paths import decoded_text
from consumer.core.envelopes.whole_event import is_failure, whole_event
from consumer.core.message import Headers, header, header_text, trace_of
from consumer.core.redaction import without_secrets
from consumer.core.response_event import MAX_ID_CHARACTERS, BadEvent, Opened, RequestContext
from consumer.core.times import UNSET_TIMES, event_time
from schemas import BadPayloadReason, OddMember

_REQUIRED: Final = ("specversion", "id", "source", "type")
_VERSIONS: Final = ("1.0", "0.3")
_PREFIXES: Final = ("ce_", "ce-")  # Of the Kafka binding, and of the HTTP binding.
_STATUS_DIGITS: Final = 3
_LOCAL: Final = ("http://localhost", "https://localhost", "http://127.0.0.1", "http://[::1]")
_DATA: Final = b'"data":'


class CloudEvent(Struct, frozen=True):
    """A valid CloudEvent.

    Attributes:
        attributes: its attributes as text, without unset ones.
        data: its data, as they were before the event was made, or why they cannot be read.
        encoding: content encoding of the data, where the event states one.

    """

    attributes: Mapping[str, str]
    data: bytes | BadEvent
    encoding: str | None = None


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

    def is_response(self, event: CloudEvent) -> bool:
        """Return whether an event is of a type that carries a response."""
        return event.attributes["type"] in self._response_types

    def open(self, event: CloudEvent, value: bytes) -> Opened:
        """Read the response of an event of such a type.

        Args:
            event: the event.
            value: bytes of the event.

        """
        attributes = event.attributes
        if isinstance(event.data, BadEvent):
            return event.data
        body = inflate(event.data, event.encoding, self._max_inflated_bytes)
        if isinstance(body, bytes) and body.startswith(b'"'):
            # Serializers of text make a JSON string of it, whatever its content type is.
            body = (decoded_text(body) or "").encode("utf-8", "replace")
        stated, code = attributes.get("time", ""), attributes.get("statuscode", "")
        time, status = event_time(stated), _status(code)
        odd = list[OddMember]()
        if time is None and stated not in UNSET_TIMES:
            odd.append(OddMember.TIMESTAMP)
        if status is None and code:
            odd.append(OddMember.STATUS)
        return whole_event(
            self._body_reader,
            body,
            value,
            source=attributes["source"],
            request_id=attributes["id"],
            time=time,
            failed=is_failure(status),
            context=self.context(event),
            odd=odd,
        )

    def context(self, event: CloudEvent) -> RequestContext:
        """Return what an event says about the request."""
        attributes = event.attributes
        source = attributes["source"]
        labels = {name: attributes[name] for name in self._label_attributes if name in attributes}
        return RequestContext(
            instance=None if source.startswith(_LOCAL) else without_secrets(source),
            endpoint=without_secrets(attributes.get("endpoint")),
            labels=labels or None,
            traceparent=trace_of([("traceparent", attributes.get("traceparent"))]),
        )


def read_binary(headers: Headers, value: bytes) -> CloudEvent | BadEvent | None:
    """Read a binary CloudEvent; None if the headers are not those of one."""
    attributes = _header_attributes(headers)
    if not all(name in attributes for name in _REQUIRED):
        return None
    problem = _problem(attributes)
    return problem or CloudEvent(attributes, value, header(headers, "content-encoding"))


def is_event(members: Mapping[str, Raw]) -> bool:
    """Return whether a JSON object has the members that every structured CloudEvent has."""
    return all(name in members for name in _REQUIRED)


def read_structured(members: Mapping[str, Raw]) -> CloudEvent | BadEvent:
    """Read the members of a structured CloudEvent."""
    members = dict(members)
    data, encoded = (_popped(members, name) for name in ("data", "data_base64"))
    attributes = {name: text for name, raw in members.items() if (text := _text(raw))}
    if (problem := _problem(attributes)) is not None:
        return problem
    if encoded is not None and data is not None:
        text = "data and data_base64 are both set"
        reason = BadPayloadReason.INVALID_CLOUDEVENT
        return CloudEvent(attributes, BadEvent(reason, text, attributes["id"]))
    if encoded is None and attributes.get("datacontentencoding") == "base64":  # Version 0.3.
        encoded = data
    if encoded is not None:
        return CloudEvent(attributes, _from_base64(_text(encoded), attributes["id"]))
    if data is not None and memoryview(data)[0] == ord('"'):
        # By the letter a string of a JSON type is that string, but no response is a string.
        return CloudEvent(attributes, (_text(data) or "").encode())
    return CloudEvent(attributes, b"" if data is None else bytes(data))


def read_pasted(value: bytes) -> CloudEvent | BadEvent | None:
    """Read a structured CloudEvent into which the producer pasted server-sent events unquoted.

    The SDK for Java does so if the events are labelled as JSON; it writes the data last.

    Returns:
        None if the value is not such an event.

    """
    head, found, stream = value.partition(_DATA)
    end = stream.rfind(b"}")
    if not found or end < 0 or not looks_like_sse(stream):
        return None
    members = raw_members(head.rstrip().rstrip(b",") + b"}")
    if not isinstance(members, dict) or not is_event(members):
        return None
    event = read_structured(members)
    return CloudEvent(event.attributes, stream[:end]) if isinstance(event, CloudEvent) else event


def _from_base64(text: str | None, event_id: str) -> bytes | BadEvent:
    try:
        return b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        problem = "data_base64 is not valid base64"
        return BadEvent(BadPayloadReason.INVALID_BASE64, problem, event_id)


def _problem(attributes: Mapping[str, str]) -> BadEvent | None:
    """Return which rule of the specification or of this service the attributes break, or None."""
    for name in _REQUIRED:
        if not attributes.get(name):
            return BadEvent(BadPayloadReason.INVALID_CLOUDEVENT, f"{name} is missing or empty")
    for name in ("id", "source"):
        if len(attributes[name]) > MAX_ID_CHARACTERS:
            problem = f"{name} is longer than {MAX_ID_CHARACTERS} characters"
            return BadEvent(BadPayloadReason.INVALID_CLOUDEVENT, problem)
    if attributes["specversion"] not in _VERSIONS:
        problem = "specversion is neither 1.0 nor 0.3"
        return BadEvent(BadPayloadReason.INVALID_CLOUDEVENT, problem)
    return None


def is_structured(content_type: str | None) -> bool:
    """Return whether a content type is that of a structured CloudEvent or of a batch."""
    return content_type is not None and content_type.lower().startswith("application/cloudevents")


def _header_attributes(headers: Headers) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for key, value in headers:
        name = key.lower()
        if name.startswith(_PREFIXES) and (text := header_text(value)):
            attributes.setdefault(name[len(_PREFIXES[0]) :], text)
        elif name == "traceparent" and (text := trace_of([(key, value)])):
            attributes.setdefault(name, text)
    return attributes


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


def _status(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _STATUS_DIGITS else None
