"""The project's own event: one JSON message per chunk, per segment or per response."""

import binascii
from base64 import b64decode
from typing import Any, Final

import msgspec
from msgspec import Struct, defstruct

from consumer.bodies.documents import DocumentReader, Shape, loads_tolerantly, shape_of
from consumer.bodies.gather import DONE, Gathered, Gatherer
from consumer.envelopes.times import milliseconds
from consumer.events import Bad, Context, Event, Kind
from schemas import BadPayloadReason

_MARK: Final = b'"request_id"'
_DONE: Final = DONE.decode()
_FIRST_ERROR_STATUS: Final = 400


class _Wire(Struct, gc=False):
    """Members of the event around its body; `schemas.ResponseEvent` documents them."""

    request_id: str
    body_base64: str | None = None
    sequence: int | None = None
    final: bool | None = None
    timestamp: int | str | None = None
    attempt: int | None = None
    model: str | None = None
    instance: str | None = None
    endpoint: str | None = None
    status: int | None = None
    labels: dict[str, str] | None = None
    body: Any = None


class NativeEnvelope:
    """Reads native events, envelope and body in one pass."""

    def __init__(self, gatherer: Gatherer) -> None:
        self._gatherer = gatherer
        self._reader: DocumentReader = gatherer.reader
        document = self._reader.document_type
        wire: Any = defstruct(
            "NativeWire",
            [("body", document | str | list[msgspec.Raw] | None, None)],
            bases=(_Wire,),
            gc=False,
        )
        self._decode = msgspec.json.Decoder(wire).decode
        self._document_type = document

    def open(self, value: bytes) -> Event | Bad | None:
        """Read one event; None if the value is not a native event."""
        if not value.startswith(b"{"):
            value = value.lstrip(b"\xef\xbb\xbf \t\r\n")
        if _MARK not in value or not value.startswith(b"{"):
            return None
        try:
            wire = self._decode(value)
        except msgspec.MsgspecError:
            return self._open_tolerantly(value)
        except RecursionError:
            return Bad(BadPayloadReason.TOO_DEEP)
        return self._event(wire, value)

    def _open_tolerantly(self, value: bytes) -> Event | Bad | None:
        members = loads_tolerantly(value)
        if not isinstance(members, dict):
            return None
        if "request_id" not in members or not members.keys() & {"body", "body_base64", "final"}:
            return None
        body = members.pop("body", None)
        try:
            wire = msgspec.convert(members, _Wire)
        except msgspec.ValidationError as error:
            return Bad(BadPayloadReason.INVALID_EVENT, str(error))
        if isinstance(body, dict):
            wire.body = self._reader.from_value(body)
        elif body is None or isinstance(body, str):
            wire.body = body
        elif isinstance(body, list):
            wire.body = [msgspec.Raw(msgspec.json.encode(entry)) for entry in body]
        else:
            return Bad(BadPayloadReason.INVALID_EVENT, "body is not an object, array or string")
        return self._event(wire, value)

    def _event(self, wire: _Wire, value: bytes) -> Event | Bad | None:
        if (problem := _problem(wire)) is not None:
            return Bad(BadPayloadReason.INVALID_EVENT, problem)
        body = wire.body
        event = Event(Kind.CHUNK, "", wire.request_id, value)
        event.sequence = wire.sequence
        event.final = wire.final is True
        event.attempt = wire.attempt
        event.time = milliseconds(wire.timestamp)
        event.failed = wire.status is not None and wire.status >= _FIRST_ERROR_STATUS
        if wire.model or wire.instance or wire.endpoint or wire.labels:
            event.context = Context(wire.model, wire.instance, wire.endpoint, wire.labels)
        if isinstance(body, self._document_type):
            event.document = body
            event.shape = shape_of(body)
        elif isinstance(body, str):
            if body.strip() in (_DONE, ""):
                event.kind = Kind.END
            else:  # A string holds whole lines, with or without the last line end.
                self._take_bytes(event, body.encode("utf-8", "replace") + b"\n\n")
        elif isinstance(body, list):
            return self._array(event, body)
        elif wire.body_base64 is not None:
            try:
                self._take_bytes(event, b64decode(wire.body_base64, validate=True))
            except (binascii.Error, ValueError):
                return Bad(BadPayloadReason.INVALID_BASE64, "body_base64")
        elif event.final or event.failed:
            event.kind = Kind.END
        else:
            return None
        return event

    def _take_bytes(self, event: Event, body: bytes) -> None:
        """Take a document that is whole, or a segment."""
        if body.startswith(b"{"):
            document = self._reader.read(body)
            if not isinstance(document, BadPayloadReason):
                event.document, event.shape = document, shape_of(document)
                return
        event.kind = Kind.SEGMENT
        event.segment = body

    def _array(self, event: Event, body: list[msgspec.Raw]) -> Event | Bad:
        """Take the answer to several prompts, which is always whole."""
        event.kind = Kind.WHOLE
        event.gathered = Gathered()
        reason = self._gatherer.take_body(event.gathered, msgspec.json.encode(body))
        if isinstance(reason, BadPayloadReason):
            return Bad(reason)
        return event if reason is None else Bad(BadPayloadReason.BODY_NOT_A_RESPONSE)


def _problem(wire: _Wire) -> str | None:
    """Return what is wrong with the members' values, if anything is."""
    if not wire.request_id:
        return "request_id is empty"
    if wire.sequence is not None and wire.sequence < 0:
        return "sequence is negative"
    if wire.attempt is not None and wire.attempt < 0:
        return "attempt is negative"
    if wire.body is not None and wire.body_base64 is not None:
        return "both body and body_base64 are given"
    return None


def is_lone_document(event: Event) -> bool:
    """Tell whether a chunk event is a document that does not belong to any response."""
    return event.kind is Kind.CHUNK and event.shape in (Shape.UNKNOWN, Shape.UNRELATED)
