"""CloudEvents 1.0 as they come over Kafka: binary, structured, and batched by HTTP bridges.

Follows the Kafka protocol binding and the JSON format of CloudEvents 1.0.2, with what the field
does to them: KServe labels a response with the content type of its request, and shares one id between a
request and its response; older producers send version 0.3; some send no label at all.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from consumer.bodies.documents import is_set
from consumer.bodies.encoding import inflate
from consumer.bodies.gather import Gathered, Gatherer
from consumer.envelopes.times import milliseconds
from consumer.events import Bad, Context, Event, Kind, Opened
from consumer.message import Headers
from schemas import BadPayloadReason, IncompleteReason, SkipReason

_REQUIRED: Final = ("specversion", "id", "source", "type")
_VERSIONS: Final = ("1.0", "0.3")
_PREFIX: Final = "ce_"
_FIRST_ERROR_STATUS: Final = 400
_STATUS_DIGITS: Final = 3
_LOCAL: Final = ("http://localhost", "https://localhost", "http://127.0.0.1", "http://[::1]")


class CloudEvents:
    """Reads CloudEvents and the response inside.

    Args:
        gatherer: reads the bodies.
        response_types: event types that carry a response.
        label_attributes: extension attributes that become labels.
        max_inflated_bytes: most bytes that a compressed body may have.

    """

    def __init__(
        self,
        gatherer: Gatherer,
        response_types: Iterable[str],
        label_attributes: Iterable[str],
        max_inflated_bytes: int,
    ) -> None:
        self._gatherer = gatherer
        self._response_types = frozenset(response_types)
        self._label_attributes = tuple(label_attributes)
        self._max_inflated_bytes = max_inflated_bytes

    def open_binary(self, headers: Headers, value: bytes) -> Opened | None:
        """Read a binary CloudEvent; None if the headers are not those of one."""
        attributes = _header_attributes(headers)
        if not all(name in attributes for name in _REQUIRED):
            return None
        return self._open(attributes, value, value, header(headers, "content-encoding"))

    def open_structured(self, value: bytes, *, labelled: bool) -> Opened | list[Opened] | None:
        """Read a structured CloudEvent or a batch; None if the value does not look like one.

        Args:
            value: the JSON text.
            labelled: whether the content type says that it is one, so that nothing else will do.

        """
        text = value.lstrip(b"\xef\xbb\xbf \t\r\n")
        try:
            if text.startswith(b"["):
                entries = msgspec.json.decode(text, type=list[Raw])
                return self._open_batch(entries, labelled=labelled)
            members = msgspec.json.decode(text, type=dict[str, Raw])
        except msgspec.ValidationError:
            return Bad(BadPayloadReason.INVALID_CLOUDEVENT, "not an object") if labelled else None
        except msgspec.DecodeError:
            return Bad(BadPayloadReason.INVALID_JSON) if labelled else None
        except RecursionError:
            return Bad(BadPayloadReason.TOO_DEEP)
        if not labelled and not all(name in members for name in _REQUIRED):
            return None
        return self._open_members(members, value)

    def _open_batch(self, entries: list[Raw], *, labelled: bool) -> Opened | list[Opened] | None:
        if not entries:
            return SkipReason.EMPTY_BATCH
        opened: list[Opened] = []
        for entry in entries:
            one = self.open_structured(bytes(entry), labelled=labelled)
            if one is None or isinstance(one, list):
                return Bad(BadPayloadReason.INVALID_CLOUDEVENT, "entry") if labelled else None
            opened.append(one)
        return opened

    def _open_members(self, members: dict[str, Raw], value: bytes) -> Opened:
        data = members.pop("data", None)
        encoded = members.pop("data_base64", None)
        attributes = {name: text for name, raw in members.items() if (text := _text(raw))}
        content = attributes.get("datacontenttype")
        if encoded is not None and is_set(encoded):
            if data is not None:
                return Bad(BadPayloadReason.INVALID_CLOUDEVENT, "both data and data_base64")
            return self._open_base64(attributes, _text(encoded), value)
        if data is None:
            return self._open(attributes, b"", value, None)
        if attributes.get("datacontentencoding") == "base64":  # Version 0.3.
            return self._open_base64(attributes, _text(data), value)
        if bytes(memoryview(data)[:1]) == b'"':
            if content is None or _is_json(content):
                # With a JSON type a string is that string, and not a document.
                return self._open(attributes, bytes(data), value, None)
            return self._open(attributes, (_text(data) or "").encode(), value, None)
        return self._open(attributes, bytes(data), value, None)

    def _open_base64(self, attributes: dict[str, str], text: str | None, value: bytes) -> Opened:
        try:
            body = b64decode(text or "", validate=True)
        except (binascii.Error, ValueError):
            return Bad(BadPayloadReason.INVALID_BASE64, "data_base64")
        return self._open(attributes, body, value, None)

    def _open(
        self, attributes: Mapping[str, str], body: bytes, value: bytes, encoding: str | None
    ) -> Opened:
        for name in _REQUIRED:
            if not attributes.get(name):
                return Bad(BadPayloadReason.INVALID_CLOUDEVENT, f"{name} is missing or empty")
        if attributes["specversion"] not in _VERSIONS:
            return Bad(BadPayloadReason.INVALID_CLOUDEVENT, "specversion is neither 1.0 nor 0.3")
        kind = attributes["type"]
        if kind not in self._response_types:
            is_request = kind.endswith(".request")
            return SkipReason.REQUEST_EVENT if is_request else SkipReason.UNRELATED_EVENT
        gathered = Gathered()
        plain = inflate(body, encoding, self._max_inflated_bytes)
        if isinstance(plain, BadPayloadReason):
            return Bad(plain)
        reason = self._gatherer.take_body(gathered, plain)
        failed = _status(attributes.get("statuscode")) >= _FIRST_ERROR_STATUS
        if isinstance(reason, SkipReason):
            return reason
        if isinstance(reason, BadPayloadReason) and not failed:
            return Bad(reason)
        return Event(
            Kind.WHOLE,
            attributes["source"],
            attributes["id"],
            value,
            gathered=gathered,
            incomplete=reason if isinstance(reason, IncompleteReason) else None,
            time=milliseconds(attributes.get("time")),
            failed=failed,
            context=self._context(attributes),
        )

    def _context(self, attributes: Mapping[str, str]) -> Context:
        source = attributes["source"]
        labels = {name: attributes[name] for name in self._label_attributes if name in attributes}
        return Context(
            instance=None if source.startswith(_LOCAL) else source,
            endpoint=attributes.get("endpoint"),
            labels=labels or None,
            traceparent=attributes.get("traceparent"),
        )


def is_structured(content_type: str | None) -> bool:
    """Tell whether a content type is that of a structured CloudEvent or of a batch."""
    return content_type is not None and content_type.lower().startswith("application/cloudevents")


def header(headers: Headers, name: str) -> str | None:
    """Return the first header of a name, whatever its case, as text; None if there is none."""
    for key, value in headers:
        if key.lower() == name:
            return _header_text(value)
    return None


def _header_attributes(headers: Headers) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for key, value in headers:
        name = key.lower()
        if name.startswith(_PREFIX) and (text := _header_text(value)):
            attributes.setdefault(name.removeprefix(_PREFIX), text)
        elif name == "traceparent" and (text := _header_text(value)):
            attributes.setdefault(name, text)
    return attributes


def _header_text(value: bytes | str | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _text(raw: Raw) -> str | None:
    """Return an attribute as text; null is unset, and other JSON types are written as they are."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else None


def _is_json(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    return media.endswith(("/json", "+json"))


def _status(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) == _STATUS_DIGITS else 0
