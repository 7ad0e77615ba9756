"""The one way from a message to its response events.

Native events and bare bodies, which are nearly all messages, have fast ways in front of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from consumer.core.bodies.body_reader import BOM_AND_SPACE, BodyReader
from consumer.core.bodies.documents import Document
from consumer.core.bodies.shapes import shape_of
from consumer.core.envelopes.bare import BareBody
from consumer.core.envelopes.cloudevents import CloudEvents, is_structured, read_binary
from consumer.core.envelopes.format_reader import FormatReader
from consumer.core.envelopes.formats import FORMATS, Format
from consumer.core.envelopes.native import NativeEnvelope
from consumer.core.envelopes.transport import plain_text
from consumer.core.envelopes.value_opener import (
    BODY,
    CLOUDEVENTS,
    NATIVE,
    Found,
    Steps,
    ValueOpener,
)
from consumer.core.message import Headers, Message, header, headers_of, trace_of
from consumer.core.response_event import (
    CUT_OFF,
    TOO_DENSE,
    BadEvent,
    Content,
    Event,
    Opened,
    RequestContext,
)
from schemas import BadPayloadReason, SkipReason

AUTO: Final = "auto"
UNKNOWN: Final = "unknown"
PATHS: Final = "paths"

_SPECVERSION: Final = b'"specversion"'
_SSE: Final = (b"data:", b"event:", b":")


class Opener:
    """Opens messages, whatever envelope they came in.

    Args:
        body_reader: reads the bodies.
        envelope: `auto`, or name of the only envelope or format to read.
        response_types: CloudEvents types that carry a response.
        label_attributes: CloudEvents extension attributes that become labels.
        max_inflated_bytes: maximum size of a value or body after its compression is undone.
        max_entries: maximum number of entries of a message.
        paths: where home-made events keep the members of a native event.

    """

    def __init__(
        self,
        body_reader: BodyReader,
        *,
        envelope: str,
        response_types: Iterable[str],
        label_attributes: Iterable[str],
        max_inflated_bytes: int,
        max_entries: int,
        paths: Mapping[str, str],
    ) -> None:
        native = NativeEnvelope(body_reader)
        cloudevents = CloudEvents(body_reader, response_types, label_attributes, max_inflated_bytes)

        def reader(form: Format) -> FormatReader:
            return FormatReader(form, body_reader, native, max_inflated_bytes)

        self._documents = body_reader.document_reader
        self._native = native
        self._bare = BareBody(body_reader)
        self._max_inflated_bytes = max_inflated_bytes
        self._allowed = None if envelope == AUTO else frozenset({envelope})
        self._reads_cloudevents = envelope in (AUTO, CLOUDEVENTS)
        self._native_first = envelope in (AUTO, NATIVE) and not paths
        self._body_first = envelope in (AUTO, BODY) and not paths
        self._values = ValueOpener(
            body_reader,
            native,
            cloudevents,
            map(reader, FORMATS),
            first=reader(paths_format(paths)) if paths else None,
            allowed=self._allowed,
            max_entries=max_entries,
        )

    def contents(self, messages: Sequence[Message]) -> Iterator[Content]:
        """Return an iterator that decodes messages that hold only stream content.

        It raises `NOT_CONTENT` for a message that can say more, and goes on with the next one. It
        is empty if another envelope is tried before native events.
        """
        if not self._native_first:
            return iter(())
        return map(self._native.decode_content, [message.value() for message in messages])

    def open(self, message: Message) -> tuple[str, Opened | list[Opened]]:
        """Return the message's envelope, and its response events, or why it has none.

        The envelope is the name of the innermost format, and `unknown` where none was recognised.
        """
        value = message.value()
        if value is None:
            return UNKNOWN, SkipReason.TOMBSTONE
        native = None
        if self._native_first:
            # A native event needs no headers, and reading them costs as much as the rest.
            native = self._native.open(value)
            if type(native) is Event:
                return NATIVE, native
            if native is TOO_DENSE:
                return UNKNOWN, native
        headers = headers_of(message.headers)
        if headers is None:
            return UNKNOWN, BadEvent(BadPayloadReason.INVALID_HEADERS)
        if not headers and native is CUT_OFF and value.find(b"\n") < 0:
            return UNKNOWN, native  # No other envelope could read it either.
        found = self._open(headers, value, None)
        if isinstance(found, Found):
            if len(found.events) == 1:
                return found.names[0], found.events[0]
            return found.name, found.events
        return UNKNOWN, found

    def trail(self, message: Message) -> Found | None:
        """Return a message's events with what is opened on the way to each; None without any."""
        value, headers = message.value(), headers_of(message.headers)
        if value is None or headers is None:
            return None
        if self._native_first and type(native := self._native.open(value)) is Event:
            return Found([NATIVE], [native], [()])
        found = self._open(headers, value, ())
        return found if isinstance(found, Found) else None

    def _open(self, headers: Headers, value: bytes, steps: Steps | None) -> Found | BadEvent:
        context, labelled = None, False
        if headers:
            if (trace := trace_of(headers)) is not None:
                context = RequestContext(traceparent=trace)
            if self._reads_cloudevents:
                labelled = is_structured(header(headers, "content-type"))
                event = None if labelled else read_binary(headers, value)
                if event is not None:
                    return self._values.open_cloudevent(event, value, context, steps)
        if self._body_first and not labelled:
            body = self._open_plain_body(value, context)
            if isinstance(body, Event):
                return Found([BODY], [body], [] if steps is None else [steps])
        plain = plain_text(value, headers, self._max_inflated_bytes)
        if isinstance(plain, BadEvent):
            return plain
        if steps is not None:
            steps += plain.steps
        if labelled:
            return self._values.open_labelled(plain.text, context, steps)
        return self._values.open(plain.text, context, steps)

    def _open_plain_body(self, value: bytes, context: RequestContext | None) -> Opened | None:
        """Open a value that is surely a body; None if it may be of another envelope as well."""
        text = value.lstrip(BOM_AND_SPACE)
        if text.startswith(_SSE):
            return self._bare.open(text, value, context)
        if not text.startswith(b"{") or value.find(_SPECVERSION) >= 0:
            return None
        document = self._documents.read(text)
        if not isinstance(document, Document):
            return None
        if document.choices is None and document.meta_info is None:
            return None
        return self._bare.open_document(document, shape_of(document), text, value, context)


def paths_format(paths: Mapping[str, str]) -> Format:
    """Return the row of the table that the setting `paths` describes."""

    def place(name: str) -> tuple[str, ...]:
        return (paths[name],) if name in paths else ()

    names = ("each", "request_id", "body", "body_base64")
    mark = next((paths[name] for name in names if name in paths), "")
    return Format(
        name=PATHS,
        title="home-made event",
        signature={mark: "array" if "each" in paths else "any"},
        entries=paths.get("each"),
        body=place("body"),
        body_base64=place("body_base64"),
        base64_if=paths.get("base64_if"),
        request_id=place("request_id"),
        model=place("model"),
        endpoint=place("endpoint"),
        instance=place("instance"),
        status=place("status"),
        timestamp=place("timestamp"),
        sequence=place("sequence"),
        final=place("final"),
        attempt=place("attempt"),
        all_labels=paths.get("labels"),
        whole=False,
    )
