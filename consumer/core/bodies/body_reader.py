"""Reads bodies, and folds them into the facts of their response.

The fold is the same for a whole body, for chunks and for segments, and its result does not depend
on the order in which chunks arrive.
"""

from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec import Raw

from consumer.core.bodies.content_events import content_range, pieces, read_content
from consumer.core.bodies.density import SMALL, has_dense_lines, most_entries
from consumer.core.bodies.documents import Choice, Document, DocumentReader
from consumer.core.bodies.entries import split_array, split_documents
from consumer.core.bodies.facts import MAX_EVENTS, UNSEEN, ResponseFacts
from consumer.core.bodies.json_text import ABSENT, TRUE, is_set, loads, why_not_json
from consumer.core.bodies.other_apis import (
    api_of_entry,
    is_framework_error,
    members_of,
    other_api,
)
from consumer.core.bodies.shapes import NOT_A_RESPONSE, STREAMED, Shape, shape_of
from consumer.core.bodies.sse import ServerSentEvent, SSEDecoder, looks_like_sse
from schemas import BadPayloadReason, IncompleteReason, SkipReason
from schemas.record import MAX_COUNT

BOM_AND_SPACE: Final = b"\xef\xbb\xbf \t\r\n"  # What may come before a body.
DONE: Final = b"[DONE]"
_LINE_STARTS: Final = (b"{", DONE)
_PARSED_EVENTS: Final = 5  # Reading an entry that is parsed already costs as much as this many.
_DAMAGE_EVENTS: Final = 99  # Reading a chunk that is not JSON costs as much as this many.
_ERROR: Final = Shape.ERROR  # See the constants of `shapes`.
_API_EVENT: Final = Shape.API_EVENT
_WHOLE: Final = Shape.WHOLE
_API_ENDS: Final = frozenset(
    {"message_stop", "response.completed", "response.incomplete", "response.failed"}
)
_decode_any: Final = msgspec.json.Decoder().decode

BodyProblem = BadPayloadReason | SkipReason | IncompleteReason


class BodyReader:
    """Folds bodies into facts; holds no state of any response.

    Args:
        document_reader: decoder of documents, which knows the declared places.
        max_stats_bytes: maximum size of the statistics kept at one place.

    """

    def __init__(self, document_reader: DocumentReader, max_stats_bytes: int) -> None:
        self.document_reader = document_reader
        self._max_stats_bytes = max_stats_bytes

    def fold_body(self, facts: ResponseFacts, body: bytes, order: int = 0) -> BodyProblem | None:
        """Fold a whole body: server-sent events, JSON, an array, or JSON lines.

        Args:
            facts: what is known of the response.
            body: the bytes.
            order: place of the body's first document in its stream.

        Returns:
            why the body is not a response, or None.

        """
        text = body.lstrip(BOM_AND_SPACE)
        if not text:
            return IncompleteReason.EMPTY_BODY
        if text.rstrip() == DONE:
            return SkipReason.ORPHAN_END
        if text.startswith(b"{"):
            document = self.document_reader.read(text)
            if isinstance(document, BadPayloadReason):
                return self.fold_json_lines_or_refuse(facts, document, text, order)
            return self.fold_single_document(facts, document, shape_of(document), text, order)
        if text.startswith(b"["):
            entries = split_array(text, min(MAX_EVENTS, most_entries(text)))
            if not isinstance(entries, list):
                return entries
            return self.fold_array(facts, entries, order)
        if text[:15].lower().startswith((b"<html", b"<!doctype html", b"<?x")):
            facts.failed = facts.ended = True  # The error page of a proxy in front of the server.
            return None
        if looks_like_sse(text):
            return self._fold_sse(facts, text, order)
        return BadPayloadReason.UNRECOGNISED_FORMAT

    def fold_if_complete(
        self, facts: ResponseFacts, body: bytes, order: int, *, at_end: bool
    ) -> bool:
        """Fold a body whose end is not marked, if it is complete.

        Args:
            facts: what is known of the response.
            body: the bytes that have come.
            order: place of the body's first document in its stream.
            at_end: whether no more will come, so that a body that is cut off counts as well.

        Returns:
            whether the body was folded.

        """
        text = body.lstrip(BOM_AND_SPACE)
        if text.startswith(b"{"):
            document = self.document_reader.read(text)
            if isinstance(document, Document):
                return (
                    self.fold_single_document(facts, document, shape_of(document), text, order)
                    is None
                )
        trial = ResponseFacts()
        if self.fold_body(trial, text) is not None:
            return False
        if not at_end and (trial.truncated or trial.damaged):
            return False
        self.fold_body(facts, text, order)
        return True

    def fold_single_document(
        self, facts: ResponseFacts, document: Document, shape: Shape, text: bytes, order: int = 0
    ) -> BadPayloadReason | SkipReason | None:
        """Fold a body that is one document, which has been decoded already."""
        if shape in NOT_A_RESPONSE:
            members = members_of(text)
            if not is_framework_error(members):
                if shape is Shape.UNRELATED:
                    return other_api(members) or SkipReason.UNRELATED_BODY
                return other_api(members) or BadPayloadReason.BODY_NOT_A_RESPONSE
            shape = _ERROR
        self.fold_document(facts, document, order, shape)
        facts.ended = facts.ended or shape is _WHOLE
        facts.streamed = shape in STREAMED
        return None

    def fold_json_lines_or_refuse(
        self, facts: ResponseFacts, reason: BadPayloadReason, text: bytes, order: int = 0
    ) -> BodyProblem | None:
        """Fold JSON lines, or return why a body that starts with { is not one document."""
        if reason is BadPayloadReason.INVALID_JSON:
            return self._fold_lines(facts, text, order)
        return reason

    def fold_array(
        self, facts: ResponseFacts, entries: list[Any], first: int = 0
    ) -> BadPayloadReason | SkipReason | None:
        """Fold the answer to several prompts, or a stream that a client collected.

        Args:
            facts: what is known of the response.
            entries: the entries of the array, parsed or as JSON.
            first: place of the first entry in its stream.

        """
        if not entries:
            return SkipReason.EMPTY_BATCH
        chunks = False
        ids: set[str | None] = set()
        for index, entry in enumerate(entries):
            if not facts.count_events(_PARSED_EVENTS):
                break
            document = self._document_of(entry)
            if isinstance(document, BadPayloadReason):
                return document
            shape = shape_of(document) if document else Shape.UNKNOWN
            if document is None or shape in NOT_A_RESPONSE:
                parsed = loads(entry) if isinstance(entry, bytes) else entry
                return api_of_entry(parsed) or BadPayloadReason.BODY_NOT_A_RESPONSE
            if document.choices is None:
                document.index = index
            chunks = chunks or shape is Shape.CHUNK
            if shape is Shape.WHOLE:
                ids.add(response_id_of(document))
            self.fold_document(facts, document, first + index, shape)
        facts.choices = max(facts.choices, len(ids))  # Several responses are several generations.
        facts.streamed = chunks
        facts.ended = not chunks
        return None

    def _document_of(self, entry: object) -> Document | BadPayloadReason | None:
        """Return the document that an entry of an array is, or why it cannot be read, or None."""
        if isinstance(entry, bytes):
            return self.document_reader.read(entry) if entry.startswith(b"{") else None
        return self.document_reader.from_value(entry) if isinstance(entry, dict) else None

    def fold_document(
        self, facts: ResponseFacts, document: Document, order: int, shape: Shape
    ) -> None:
        """Fold one document.

        Args:
            facts: what is known of the response.
            document: the document, of any shape but `UNKNOWN` and `UNRELATED`.
            order: place of the document in its stream.
            shape: the document's shape.

        """
        facts.documents += 1
        if shape is _ERROR:
            facts.failed = True
        elif shape is _API_EVENT:
            self._fold_api_event(facts, document, order)
        # By `id` first: nearly all documents have one, and a call costs.
        if (response_id := document.id or response_id_of(document)) is not None:
            facts.add_id(response_id, order)
        if document.model:
            facts.add_model(document.model, order, document.system_fingerprint)
        if document.choices:
            _fold_choices(facts, document.choices, order)
        elif document.choices is None:
            _fold_generation(facts, document, order)
        if document.usage is not None:
            _fold_usage(facts, document.usage, order, closes=not document.choices)
        facts.add_finish_reason(document.stop_reason, order)
        if document.type == "message" or document.object == "response":
            facts.without_stats = True
        for place, stats in self.document_reader.stats(document):
            kept = stats if len(stats) <= self._max_stats_bytes else b""
            facts.add_stats(place, kept, order)

    def result_digest(self, document: Document) -> int | None:
        """Return a digest of the result in a chunk, or None if the chunk holds content only.

        A result is a finish reason, or a usage chunk with its statistics. The digest leaves out
        what is around the body, such as the time at which it was logged.
        """
        if not has_result(document):
            return None
        reasons = [choice.finish_reason for choice in document.choices or ()]
        usage = [bytes(count) for count in (document.usage or document.meta_info or {}).values()]
        stats = self.document_reader.stats(document)
        result = (response_id_of(document), document.created, reasons, usage, stats)
        return crc32(repr(result).encode())

    def fold_stream(
        self, facts: ResponseFacts, decoder: SSEDecoder, text: bytes, first: int
    ) -> None:
        """Fold the next bytes of a stream.

        Args:
            facts: what is known of the response.
            decoder: decoder of the stream, which has read all bytes before.
            text: the bytes.
            first: place of the first event that the bytes complete.

        """
        facts.streamed = True
        content = content_range(text)
        if content is not None and not facts.ended:
            begin, end = content  # Both between events, whatever the decoder held before.
            first = self._fold_events(facts, decoder, text[:begin], first)
            for piece in pieces(text, begin, end):
                passed = self._fold_content_only(facts, piece, first)
                first = (
                    first + passed if passed else self._fold_events(facts, decoder, piece, first)
                )
            text = text[end:]
        self._fold_events(facts, decoder, text, first)

    def finish_stream(self, facts: ResponseFacts, decoder: SSEDecoder, order: int) -> None:
        """Fold what a stream's decoder still holds, since no more bytes will come."""
        for event in decoder.finish():
            damaged = facts.damaged
            self._fold_event(facts, event, order)
            if facts.damaged and not damaged:  # The last chunk is cut off, not corrupt.
                facts.damaged, facts.truncated = False, True

    def _fold_sse(
        self, facts: ResponseFacts, text: bytes, first: int
    ) -> BadPayloadReason | SkipReason | None:
        decoder = SSEDecoder()
        self.fold_stream(facts, decoder, text, first)
        self.finish_stream(facts, decoder, UNSEEN - 1)
        facts.ended = facts.ended or facts.stopped
        if facts.damaged and not facts.documents and has_dense_lines(text):
            return BadPayloadReason.TOO_DENSE
        if facts.documents or facts.damaged or facts.truncated:
            return None
        if facts.ended:
            return SkipReason.ORPHAN_END
        if not facts.events:
            return SkipReason.KEEP_ALIVE
        events = SSEDecoder().feed(text)
        api = other_api(members_of(events[0].data)) if events else None
        return api or BadPayloadReason.BODY_NOT_A_RESPONSE

    def _fold_lines(self, facts: ResponseFacts, text: bytes, first: int) -> BodyProblem | None:
        """Fold JSON documents, as some servers stream and some clients collect what is streamed."""
        lines = _collected(text)
        if not isinstance(lines, list):
            return lines
        facts.streamed = True
        ids: set[str | None] = set()
        for order, line in enumerate(lines, first):
            if not facts.count_events():
                break
            if line == DONE:
                facts.ended = True
                break
            document = self.document_reader.read(line)
            if isinstance(document, BadPayloadReason):
                facts.damaged = True
                facts.count_events(_DAMAGE_EVENTS)
                continue
            shape = shape_of(document)
            if shape is Shape.WHOLE:
                ids.add(response_id_of(document))
            if shape not in NOT_A_RESPONSE:
                self.fold_document(facts, document, order, shape)
        if not facts.documents:
            return other_api(members_of(lines[0])) or why_not_json(text)
        facts.choices = max(facts.choices, len(ids))
        if facts.damaged and not facts.ended and not text.endswith(b"\n"):
            facts.damaged, facts.truncated = False, True
        return None

    def _fold_events(
        self, facts: ResponseFacts, decoder: SSEDecoder, text: bytes, first: int
    ) -> int:
        """Fold server-sent events; return the order of the next one."""
        if len(text) > SMALL and has_dense_lines(text):
            facts.damaged = True
            return first
        events = decoder.feed(text)
        for order, event in enumerate(events, first):
            self._fold_event(facts, event, order)
        return first + len(events)

    def _fold_content_only(self, facts: ResponseFacts, text: bytes, order: int) -> int:
        """Fold server-sent events that hold nothing but content, without decoding each.

        Returns:
            number of events, or 0 if one may hold more; then none was folded.

        """
        known = facts.choices and max(facts.id_order, facts.model_order) < order
        if not known or facts.ended or facts.failed:
            return 0
        count, ids = read_content(self.document_reader, text)
        if ids != {facts.response_id} or facts.events + count > MAX_EVENTS:
            return 0
        facts.events += count
        facts.documents += count
        return count

    def _fold_event(self, facts: ResponseFacts, event: ServerSentEvent, order: int) -> None:
        """Fold one server-sent event. After an end marker, nothing changes the response."""
        text = event.data.strip()
        if facts.ended or not text or not facts.count_events():
            return
        if text == DONE:
            facts.ended = True
            return
        if event.name == b"error":
            facts.failed = True
            facts.documents += 1
            return
        document = self.document_reader.read(event.data)
        if isinstance(document, BadPayloadReason):
            facts.damaged = True
            facts.count_events(_DAMAGE_EVENTS)
            return
        shape = shape_of(document)
        if shape not in NOT_A_RESPONSE:
            self.fold_document(facts, document, order, shape)

    def _fold_api_event(self, facts: ResponseFacts, document: Document, order: int) -> None:
        """Fold an event of an API that has its own events and terminator."""
        facts.without_stats = True
        kind = document.type or ""
        facts.ended = facts.ended or kind in _API_ENDS
        facts.failed = facts.failed or kind == "response.failed"
        inner = document.response if is_set(document.response) else document.message
        if is_set(inner):
            wrapped = self.document_reader.read(bytes(inner))
            if isinstance(wrapped, Document):
                if wrapped.id:
                    facts.add_id(wrapped.id, order)
                if wrapped.model:
                    facts.add_model(wrapped.model, order)
                if wrapped.usage is not None:
                    _fold_usage(facts, wrapped.usage, order)
        if kind == "message_delta" and is_set(document.delta):
            delta = self.document_reader.read(bytes(document.delta))
            if isinstance(delta, Document):
                facts.add_finish_reason(delta.stop_reason, order)


def response_id_of(document: Document) -> str | None:
    """Return the id that a document gives its response; an empty one is none."""
    return document.id or document.request_id or _meta_text(document, "id") or None


def created_of(document: Document | None) -> float:
    """Return when a document was created, in seconds since 1970, or -1 if that is not known."""
    created = None if document is None else document.created
    return -1 if created is None or isinstance(created, str) else created


def _collected(text: bytes) -> list[bytes] | BodyProblem:
    """Return collected documents, with or without what stood around them in a stream.

    A line may keep the field and the end marker of server-sent events. A single text that is not
    JSON is refused.
    """
    documents = split_documents(text, min(MAX_EVENTS, most_entries(text)))
    if isinstance(documents, BadPayloadReason):
        return documents
    fields = (line.removeprefix(b"data:").strip() for line in documents)
    lines = [line for line in fields if line and not line.startswith(b":")]
    if len(lines) == 1 or not all(line.startswith(_LINE_STARTS) for line in lines):
        return why_not_json(text)
    return lines


def has_result(document: Document) -> bool:
    """Return whether a chunk holds a finish reason, or is the usage chunk."""
    for choice in document.choices or ():
        if choice.finish_reason:
            return True
    if document.meta_info is not None:
        return is_set(document.meta_info.get("finish_reason", ABSENT))
    return document.usage is not None and not document.choices


def _fold_choices(facts: ResponseFacts, choices: Sequence[Choice], order: int) -> None:
    for choice in choices:
        if choice.index >= facts.choices:
            facts.choices = choice.index + 1
        if choice.finish_reason is not None:
            facts.add_finish_reason(choice.finish_reason, order)


def _fold_generation(facts: ResponseFacts, document: Document, order: int) -> None:
    """Fold a generation of an API without `choices`, whose `meta_info` has what it states."""
    meta = document.meta_info
    if meta is None:
        if document.stop is not ABSENT:
            _fold_native_completion(facts, document, order)
        return
    if document.index >= facts.choices:
        facts.choices = document.index + 1
    _fold_usage(facts, meta, order)
    finish = meta.get("finish_reason")
    if finish is None or not is_set(finish) or order >= facts.finish_order:
        return
    reason = _decoded(finish)
    if isinstance(reason, dict):
        reason = reason.get("type")
    if isinstance(reason, str):
        facts.add_finish_reason(reason, order)


def _fold_native_completion(facts: ResponseFacts, document: Document, order: int) -> None:
    """Fold llama.cpp's native completion, whose last document has `stop` true."""
    if document.index >= facts.choices:
        facts.choices = document.index + 1
    if bytes(document.stop) == TRUE:
        facts.stopped = True
        _fold_usage(
            facts,
            {
                "prompt_tokens": document.tokens_evaluated,
                "completion_tokens": document.tokens_predicted,
            },
            order,
        )
        facts.add_finish_reason(document.stop_type, order)


def _fold_usage(
    facts: ResponseFacts, usage: dict[str, Raw], order: int, *, closes: bool = False
) -> None:
    if closes and order > facts.closing_order:
        facts.closing_order = order
    prompt = _count(usage, "prompt_tokens", "input_tokens")
    completion = _count(usage, "completion_tokens", "output_tokens")
    facts.add_usage(prompt, completion, order)


def _count(members: dict[str, Raw], *names: str) -> int | None:
    """Return the first valid count under two names."""
    for name in names:
        if (raw := members.get(name)) is not None:
            value = _decoded(raw)
            if type(value) is int and 0 <= value <= MAX_COUNT:
                return value
    return None


def _meta_text(document: Document, name: str) -> str | None:
    if document.meta_info is None or name not in document.meta_info:
        return None
    value = _decoded(document.meta_info[name])
    return value if isinstance(value, str) else None


def _decoded(raw: Raw) -> object:
    try:
        return _decode_any(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None
