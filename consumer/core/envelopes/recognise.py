"""The envelope that a message came in, recognised by its headers and content."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from consumer.core.bodies.body_reader import BOM_AND_SPACE, BodyReader
from consumer.core.envelopes.bare import BareBody
from consumer.core.envelopes.cloudevents import CloudEvents, is_structured
from consumer.core.envelopes.mapped import MappedEnvelope
from consumer.core.envelopes.native import NativeEnvelope
from consumer.core.message import Headers, Message, header, headers_of
from consumer.core.response_event import CUT_OFF, NOT_JSON, BadEvent, Content, Opened
from schemas import BadPayloadReason, SkipReason

EnvelopeName = Literal["auto", "native", "cloudevents", "body"]
Envelope = Literal["native", "mapped", "cloudevents", "body", "unknown"]

_SPECVERSION: Final = b'"specversion"'


class Recogniser:
    """Opens messages, whatever envelope they came in.

    Args:
        body_reader: reads the bodies.
        envelope: `auto`, or the only envelope to try.
        response_types: CloudEvents types that carry a response.
        label_attributes: CloudEvents extension attributes that become labels.
        max_inflated_bytes: maximum size of a body after its compression is undone.
        paths: where home-made events keep the members of a native event.

    """

    def __init__(
        self,
        body_reader: BodyReader,
        *,
        envelope: EnvelopeName,
        response_types: Iterable[str],
        label_attributes: Iterable[str],
        max_inflated_bytes: int,
        paths: Mapping[str, str],
    ) -> None:
        self._native = NativeEnvelope(body_reader)
        self._mapped = MappedEnvelope(self._native, paths) if paths else None
        self._cloudevents = CloudEvents(
            body_reader, response_types, label_attributes, max_inflated_bytes
        )
        self._bare = BareBody(body_reader, max_inflated_bytes)
        self._envelope = envelope
        self._native_first = envelope in ("auto", "native") and not paths

    def contents(self, messages: Sequence[Message]) -> Iterator[Content]:
        """Return an iterator that decodes messages that hold only stream content.

        It raises `NOT_CONTENT` for a message that can say more, and goes on with the next one. It
        is empty if another envelope is tried before native events.
        """
        if not self._native_first:
            return iter(())
        return map(self._native.decode_content, [message.value() for message in messages])

    def open(self, message: Message) -> tuple[Envelope, Opened | list[Opened]]:
        """Return the message's envelope, and its response events, or why it has none.

        The envelope is `unknown` where none was recognised.
        """
        value = message.value()
        if value is None:
            return "unknown", SkipReason.TOMBSTONE
        only_envelope, native = self._envelope, None
        if only_envelope in ("auto", "native"):
            # A native event needs no headers, and reading them costs as much as the rest.
            if self._mapped is not None and (mapped := self._mapped.open(value)) is not None:
                return "mapped", mapped
            native = self._native.open(value)
            if native is not None and native is not CUT_OFF and native is not NOT_JSON:
                return "native", native
            if only_envelope == "native":
                return "unknown", _refused(value, "native event")
        headers = headers_of(message.headers)
        if headers is None:
            return "unknown", BadEvent(BadPayloadReason.INVALID_HEADERS)
        opened = self._open_cloudevent(headers, value) if only_envelope != "body" else None
        if opened is not None:
            return "cloudevents", opened
        if only_envelope == "cloudevents":
            return "unknown", _refused(value, "CloudEvent")
        if native is not None and not headers and len(value.splitlines()) == 1:
            return "unknown", native  # No other envelope could read it either.
        body = self._bare.open(headers, value)
        return ("unknown" if isinstance(body, BadEvent) else "body"), body

    def _open_cloudevent(self, headers: Headers, value: bytes) -> Opened | list[Opened] | None:
        if not headers:
            if not _is_json(value) or value.find(_SPECVERSION) < 0:
                return None
            return self._cloudevents.open_structured(value, labelled=False)
        if is_structured(header(headers, "content-type")):
            return self._cloudevents.open_structured(value, labelled=True)
        opened = self._cloudevents.open_binary(headers, value)
        if opened is None and _is_json(value) and value.find(_SPECVERSION) >= 0:
            return self._cloudevents.open_structured(value, labelled=False)
        return opened


def _is_json(value: bytes) -> bool:
    return value[:1] in (b"{", b"[") or value.lstrip(BOM_AND_SPACE).startswith((b"{", b"["))


def _refused(value: bytes, expected: str) -> BadEvent:
    """Return what is wrong with a value that is not of the only envelope to try."""
    if not value.strip():
        return BadEvent(BadPayloadReason.EMPTY_VALUE)
    if not value.lstrip().startswith((b"{", b"[")):
        return BadEvent(BadPayloadReason.UNRECOGNISED_FORMAT)
    return BadEvent(BadPayloadReason.UNRECOGNISED_SHAPE, f"the value is not a {expected}")
