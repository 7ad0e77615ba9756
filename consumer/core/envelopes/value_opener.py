"""Opens a value by its content, however it is wrapped: the general way behind the fast ones.

A value is split into entries; each entry is recognised as a native event, a CloudEvent, a format of
the table or a body; and any other entry is a wrapper if one of its members holds such an entry.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from msgspec import Raw, Struct

from consumer.core.bodies.body_reader import BOM_AND_SPACE, DONE, BodyReader
from consumer.core.bodies.density import most_entries
from consumer.core.bodies.entries import split_array, split_documents
from consumer.core.bodies.json_text import raw_members, why_not_json
from consumer.core.bodies.other_apis import other_api
from consumer.core.bodies.shapes import NOT_A_RESPONSE, Shape, shape_of
from consumer.core.bodies.sse import looks_like_sse
from consumer.core.envelopes.bare import BareBody, refusal
from consumer.core.envelopes.bodies_of_entries import bodies_of
from consumer.core.envelopes.cloudevents import (
    CloudEvent,
    CloudEvents,
    is_event,
    read_pasted,
    read_structured,
)
from consumer.core.envelopes.format_reader import FormatReader, FormatTable
from consumer.core.envelopes.member_paths import EventMembers, decoded_text
from consumer.core.envelopes.native import NativeEnvelope
from consumer.core.envelopes.otlp import OTLP_MEMBER, LogRecord, json_records, protobuf_records
from consumer.core.envelopes.wrappers import ROW, holds_blank_line, names_of, wrapped_texts
from consumer.core.response_event import CUT_OFF, BadEvent, Event, Opened, RequestContext
from consumer.core.times import event_time
from schemas import BadPayloadReason, SkipReason

T = TypeVar("T")

MAX_WRAPPERS: Final = 3
_REQUEST_ID: Final = "request_id"
NATIVE: Final = "native"
CLOUDEVENTS: Final = "cloudevents"
BODY: Final = "body"
OTLP: Final = "otlp"
_NOT_NAMED: Final = (None, SkipReason.UNRELATED_BODY)
# Faults of what certainly is a body.
_OF_BODIES: Final = (BadPayloadReason.NO_REQUEST_ID, BadPayloadReason.INVALID_EVENT)
_CAPS: Final = frozenset(
    {
        BadPayloadReason.TOO_DEEP,
        BadPayloadReason.WRAPPED_TOO_DEEP,
        BadPayloadReason.TOO_MANY_ENTRIES,
        BadPayloadReason.TOO_MANY_CHOICES,
        BadPayloadReason.TOO_DENSE,
    }
)
# SGLang writes the time before each JSON line of its log.
_LOG_TIME: Final = re.compile(
    rb"^\[[0-9]{4}-[0-9]{2}-[0-9]{2}[^\]\r\n]{0,40}\] (?=\{)", re.MULTILINE
)
Steps = tuple[str, ...]
"""What was opened on the way to an event, outermost first."""


class Found(Struct):
    """What a value holds.

    Attributes:
        names: of each event, the name of its envelope or format; empty for none.
        events: its events, each in its place.
        steps: of each event, what was opened on the way to it; empty unless asked for.

    """

    names: list[str]
    events: list[Opened]
    steps: list[Steps]

    @property
    def name(self) -> str:
        """The first name."""
        return next(filter(None, self.names), "")


class _Opening(Struct):
    """The state while one value is opened."""

    context: RequestContext | None
    left: int  # Entries that the value may still have.


class ValueOpener:
    """Opens values by their content.

    Args:
        body_reader: reads the bodies.
        native: reads native events.
        cloudevents: reads CloudEvents.
        readers: readers of the formats, in the order in which they are tried.
        first: the format that is tried before all others, if there is one.
        allowed: the only envelopes and formats that count; None for all. In log records all count.
        max_entries: maximum number of entries of a value.

    """

    def __init__(
        self,
        body_reader: BodyReader,
        native: NativeEnvelope,
        cloudevents: CloudEvents,
        readers: Iterable[FormatReader],
        *,
        first: FormatReader | None,
        allowed: frozenset[str] | None,
        max_entries: int,
    ) -> None:
        self._only_otlp = allowed == frozenset({OTLP})
        allowed = None if self._only_otlp else allowed
        self._body_reader = body_reader
        self._native = native if allowed is None or NATIVE in allowed else None
        self._cloudevents = cloudevents
        self._reads_cloudevents = allowed is None or CLOUDEVENTS in allowed
        self._bare = BareBody(body_reader) if allowed is None or BODY in allowed else None
        self._first = first
        self._reads_otlp = allowed is None
        self._table = FormatTable(
            reader for reader in readers if allowed is None or reader.form.name in allowed
        )
        self._max_entries = max_entries

    def open(
        self, text: bytes, context: RequestContext | None, steps: Steps | None
    ) -> Found | BadEvent:
        """Open a value.

        Args:
            text: the value, without compression and frame.
            context: what the headers say about the request.
            steps: what was opened before; None to note no steps.

        Returns:
            what it holds, or why that is not recognised.

        """
        opening = self._opening(text, context)
        if self._reads_otlp and (records := protobuf_records(text, opening.left)) is not None:
            if isinstance(records, BadPayloadReason):
                return BadEvent(records)
            return self._open_records(records, 0, _and(steps, "Protobuf"), opening)
        if self._only_otlp and text.find(OTLP_MEMBER.encode()) < 0:
            return BadEvent(BadPayloadReason.UNRECOGNISED_SHAPE, "the value has no log records")
        return self._open_text(text, 0, steps, opening)

    def open_cloudevent(
        self,
        event: CloudEvent | BadEvent,
        value: bytes,
        context: RequestContext | None,
        steps: Steps | None,
    ) -> Found:
        """Open a CloudEvent.

        An event of a type that is not listed is a wrapper, of which the inner id counts; it is
        skipped if it holds no response.
        """
        return self._open_cloudevent(event, value, 0, steps, self._opening(value, context))

    def open_labelled(
        self, text: bytes, context: RequestContext | None, steps: Steps | None
    ) -> Found:
        """Open a value whose content type says that it is a structured CloudEvent or a batch."""
        opening = self._opening(text, context)
        text = text.lstrip(BOM_AND_SPACE)
        if not text.startswith(b"["):
            return self._open_labelled_entry(text, steps, opening)
        entries = split_array(text, opening.left)
        if not isinstance(entries, list):
            return _found(CLOUDEVENTS, refusal(entries), steps)
        if not entries:
            return _found(CLOUDEVENTS, SkipReason.EMPTY_BATCH, steps)
        all_found = [
            self._open_labelled_entry(entry, at, opening) for entry, at in _numbered(entries, steps)
        ]
        return _merged(all_found)

    def _open_labelled_entry(self, text: bytes, steps: Steps | None, opening: _Opening) -> Found:
        members = raw_members(text)
        if isinstance(members, dict):
            event: CloudEvent | BadEvent = read_structured(members)
        elif isinstance(members, list) or members is BadPayloadReason.UNRECOGNISED_SHAPE:
            event = BadEvent(BadPayloadReason.INVALID_CLOUDEVENT, "it is not an object")
        else:
            event = read_pasted(text) or BadEvent(members)
        return self._open_cloudevent(event, text, 0, steps, opening)

    def _opening(self, value: bytes, context: RequestContext | None) -> _Opening:
        return _Opening(context, min(self._max_entries, most_entries(value)))

    def _open_text(
        self, text: bytes, depth: int, steps: Steps | None, opening: _Opening
    ) -> Found | BadEvent:
        if depth > MAX_WRAPPERS:
            return BadEvent(BadPayloadReason.WRAPPED_TOO_DEEP)
        text = text.lstrip(BOM_AND_SPACE)
        if text.startswith(b"[") and _LOG_TIME.match(text):
            text, steps = _LOG_TIME.sub(b"", text), _and(steps, "line prefix")
        if not text and self._bare is None:
            return BadEvent(BadPayloadReason.EMPTY_VALUE)
        if not text.startswith((b"{", b"[", b'"')) or text.rstrip() == DONE:
            return self._open_body(text, steps, opening)
        documents = split_documents(text, opening.left)
        if not isinstance(documents, list):
            return BadEvent(documents)
        if len(documents) == 1:
            return self._open_document(text.rstrip(), depth, steps, opening)
        return self._open_entries(documents, text, depth, steps, opening)

    def _open_document(
        self, text: bytes, depth: int, steps: Steps | None, opening: _Opening
    ) -> Found | BadEvent:
        """Open one JSON value."""
        if text.startswith(b"{"):
            members = raw_members(text)
            if isinstance(members, dict):
                return self._open_members(members, text, depth, steps, opening)
            if self._reads_cloudevents and (event := read_pasted(text)) is not None:
                return self._open_cloudevent(event, text, depth, steps, opening)
            if isinstance(members, BadPayloadReason) and members in _CAPS:
                return BadEvent(members)
            return refusal(why_not_json(text))
        if text.startswith(b'"'):
            return self._open_string(text, depth, steps, opening)
        if text.startswith(b"[") and text != DONE:
            entries = split_array(text, opening.left)
            if not isinstance(entries, list):
                return refusal(entries)
            if not entries:
                return _found(BODY, SkipReason.EMPTY_BATCH, steps)
            return self._open_entries(entries, text, depth, steps, opening)
        return self._open_body(text, steps, opening)

    def _open_string(
        self, text: bytes, depth: int, steps: Steps | None, opening: _Opening
    ) -> Found | BadEvent:
        inner = decoded_text(text)
        if inner is None:
            return refusal(why_not_json(text))
        inner_text = inner.encode("utf-8", "replace")
        return self._open_text(inner_text, depth + 1, _and(steps, "JSON string"), opening)

    def _open_entries(
        self, entries: list[bytes], text: bytes, depth: int, steps: Steps | None, opening: _Opening
    ) -> Found | BadEvent:
        """Open the entries of an array or the documents of several lines."""
        opening.left -= len(entries)
        if opening.left < 0:
            return BadEvent(BadPayloadReason.TOO_MANY_ENTRIES)
        if (
            self._bare is not None
            and (groups := bodies_of(self._body_reader.document_reader, entries, text)) is not None
        ):
            parts = [self._open_body(group, at, opening) for group, at in _numbered(groups, steps)]
        elif depth > MAX_WRAPPERS:
            return BadEvent(BadPayloadReason.WRAPPED_TOO_DEEP)
        else:
            # An array in an array counts as a wrapper; the first one does not.
            parts = [
                self._open_document(entry, depth + entry.startswith(b"["), at, opening)
                for entry, at in _numbered(entries, steps)
            ]
        if not any(isinstance(part, Found) for part in parts):
            # An array may be the answer of another API.
            body = self._open_body(text, steps, opening)
            if isinstance(body, Found):
                return body
            bad = [part for part in parts if isinstance(part, BadEvent)]
            return next((part for part in bad if part.reason in _CAPS), bad[0])
        return _merged(
            part if isinstance(part, Found) else _found("", part, None if steps is None else at)
            for part, (_, at) in zip(parts, _numbered(entries, steps), strict=False)
        )

    def _open_members(
        self,
        top: dict[str, Raw],
        text: bytes,
        depth: int,
        steps: Steps | None,
        opening: _Opening,
    ) -> Found | BadEvent:
        """Open one JSON object."""
        members = EventMembers(top)
        if self._first is not None and self._first.matches(members):
            found = self._open_format(self._first, members, text, steps, opening)
            if found is not None:
                return found
        native = self._native.open(text) if self._native and _REQUEST_ID in top else None
        if isinstance(native, Event | SkipReason):
            return _found(NATIVE, native, steps)
        if self._reads_cloudevents and is_event(top):
            return self._open_cloudevent(read_structured(top), text, depth, steps, opening)
        if self._reads_otlp and OTLP_MEMBER in top:
            records = json_records(bytes(top[OTLP_MEMBER]), opening.left)
            if isinstance(records, BadPayloadReason):
                return BadEvent(records)
            return self._open_records(records, depth, steps, opening)
        if (reader := self._table.find(top, members)) is not None:
            found = self._open_format(reader, members, text, steps, opening)
            if found is not None:
                return found
        if native is not None:
            return _found(NATIVE, native, steps)
        return self._open_body_or_wrapper(top, members, text, depth, steps, opening)

    def _open_body_or_wrapper(
        self,
        top: dict[str, Raw],
        members: EventMembers,
        text: bytes,
        depth: int,
        steps: Steps | None,
        opening: _Opening,
    ) -> Found | BadEvent:
        """Open a JSON object that is of no envelope and no format."""
        document = self._body_reader.document_reader.read(text)
        if isinstance(document, BadPayloadReason):
            return BadEvent(document)
        shape = shape_of(document)
        # Generated text may look like a response, so the answers of other APIs are not wrappers.
        may_wrap = shape is Shape.UNKNOWN and other_api(top) in _NOT_NAMED
        wrapped = self._open_wrapper(top, members, depth, steps, opening) if may_wrap else None
        if isinstance(wrapped, Found):
            return wrapped
        if self._bare is not None:
            body = self._bare.open_document(document, shape, text, text, opening.context)
            if not isinstance(body, BadEvent) or body.reason in _OF_BODIES:
                return _found(BODY, body, steps)
        if holds_blank_line(top):
            return _found(BODY, SkipReason.KEEP_ALIVE, steps)
        return wrapped or BadEvent(BadPayloadReason.UNRECOGNISED_SHAPE, names_of(top))

    def _open_format(
        self,
        reader: FormatReader,
        members: EventMembers,
        text: bytes,
        steps: Steps | None,
        opening: _Opening,
    ) -> Found | None:
        name = reader.form.name
        events = reader.open(members, text, opening.left)
        if not events:
            return None
        opening.left -= len(events)
        if len(events) == 1:
            return _found(name, events[0], steps)
        return _merged(_found(name, event, at) for event, at in _numbered(events, steps))

    def _open_records(
        self, records: list[LogRecord], depth: int, steps: Steps | None, opening: _Opening
    ) -> Found | BadEvent:
        """Open log records, each by itself: its body, else its attributes."""
        opening.left -= len(records)
        if opening.left < 0:
            return BadEvent(BadPayloadReason.TOO_MANY_ENTRIES)
        if not records:
            return _found(OTLP, SkipReason.EMPTY_BATCH, steps)
        return _merged(
            self._open_record(record, depth, _and(at, "log record"), opening)
            for record, at in _numbered(records, steps)
        )

    def _open_record(
        self, record: LogRecord, depth: int, steps: Steps | None, opening: _Opening
    ) -> Found:
        refused: Opened = SkipReason.UNRELATED_EVENT
        for part in record.parts:
            text = part.lstrip(BOM_AND_SPACE)
            if not text.startswith((b"{", b"[", b'"')) and not looks_like_sse(text):
                continue
            if opening.left < 0:
                return _found(OTLP, BadEvent(BadPayloadReason.TOO_MANY_ENTRIES), steps)
            inner = self._open_text(text, depth + 1, steps, opening)
            if isinstance(inner, Found):
                _complete(inner.events, RequestContext(traceparent=record.traceparent), record.time)
                return inner
            if inner.reason in _CAPS:
                refused = inner
        return _found(OTLP, refused, steps)

    def _open_cloudevent(
        self,
        event: CloudEvent | BadEvent,
        value: bytes,
        depth: int,
        steps: Steps | None,
        opening: _Opening,
    ) -> Found:
        if isinstance(event, BadEvent):
            return _found(CLOUDEVENTS, event, steps)
        if self._cloudevents.is_response(event):
            return _found(CLOUDEVENTS, self._cloudevents.open(event, value), steps)
        if event.attributes["type"].endswith(".request"):
            return _found(CLOUDEVENTS, SkipReason.REQUEST_EVENT, steps)
        if isinstance(event.data, bytes):
            inner = self._open_text(
                event.data, depth + 1, _and(steps, "CloudEvent of another type"), opening
            )
            if isinstance(inner, Found) and any(isinstance(one, Event) for one in inner.events):
                time = event_time(event.attributes.get("time"))
                _complete(inner.events, self._cloudevents.context(event), time)
                return inner
        return _found(CLOUDEVENTS, SkipReason.UNRELATED_EVENT, steps)

    def _open_wrapper(
        self,
        members: dict[str, Raw],
        event_members: EventMembers,
        depth: int,
        steps: Steps | None,
        opening: _Opening,
    ) -> Found | BadEvent | None:
        """Open the first member of a wrapper that holds what is recognised.

        Returns:
            what it holds, or why a member cannot be read to its end, or None.

        """
        row = self._row_event(bytes(members.get(ROW, b"")))
        if row is not None and _certainly_responds(row):
            return _found(NATIVE, row, _and(steps, f"member {ROW}"))
        problem = None
        for name, text in wrapped_texts(members, event_members):
            if opening.left < 0:
                return BadEvent(BadPayloadReason.TOO_MANY_ENTRIES)
            inner = self._open_text(text, depth + 1, _and(steps, f"member {name}"), opening)
            if isinstance(inner, Found):
                says_more = row is None or any(isinstance(one, Event) for one in inner.events)
                if says_more and inner.events != [SkipReason.EMPTY_BATCH]:
                    return inner
            elif inner is CUT_OFF or inner.reason in _CAPS:
                problem = problem or BadEvent(inner.reason, inner.detail or f"in member {name}")
            opening.left -= 1  # Opened in vain, it costs as much as an entry.
        if row is not None and problem is None:
            return _found(NATIVE, row, _and(steps, f"member {ROW}"))
        return problem

    def _row_event(self, row: bytes) -> Event | None:
        """Return a row whose columns are the members of a native event; None of another object."""
        event = self._native.open(row) if self._native and row.startswith(b"{") else None
        if not isinstance(event, Event):
            return None
        is_other = event.document is not None and event.shape in NOT_A_RESPONSE
        return None if is_other else event

    def _open_body(self, text: bytes, steps: Steps | None, opening: _Opening) -> Found | BadEvent:
        """Open a text that is nothing but a body, or is not recognised."""
        if self._bare is None:
            is_json = text.startswith((b"{", b"["))
            reason = (
                BadPayloadReason.UNRECOGNISED_SHAPE
                if is_json
                else BadPayloadReason.UNRECOGNISED_FORMAT
            )
            return BadEvent(reason)
        opened = self._bare.open(text, text, opening.context)
        if isinstance(opened, BadEvent) and opened.reason not in _OF_BODIES:
            return opened
        return _found(BODY, opened, steps)


def _certainly_responds(event: Event) -> bool:
    """Return whether no column of another name may be the response: `body` may be a request."""
    whole = event.document is not None or event.facts is not None
    return whole or looks_like_sse(event.segment)


def _complete(events: list[Opened], context: RequestContext, time: int | None) -> None:
    """Give the events in a wrapper the context and the time that they do not state themselves."""
    for event in events:
        if isinstance(event, Event):
            event.context = event.context or context
            event.time = time if event.time is None else event.time


def _and(steps: Steps | None, step: str) -> Steps | None:
    return None if steps is None else (*steps, step)


def _numbered(entries: list[T], steps: Steps | None) -> Iterator[tuple[T, Steps | None]]:
    """Return an iterator over entries and the steps to each."""
    if steps is None or len(entries) == 1:
        return ((entry, steps) for entry in entries)
    count = len(entries)
    return ((entry, (*steps, f"entry {number} of {count}")) for number, entry in enumerate(entries))


def _found(name: str, opened: Opened, steps: Steps | None) -> Found:
    return Found([name], [opened], [] if steps is None else [steps])


def _merged(parts: Iterable[Found]) -> Found:
    found = Found([], [], [])
    for part in parts:
        found.names += part.names
        found.events += part.events
        found.steps += part.steps
    return found
