"""What has been learnt of one response so far: the fold over its documents.

The fold is the same for a whole body, for chunks and for segments, and does not depend on the order
in which chunks arrive: what can be replaced remembers the order of the chunk that it came from.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

from consumer.core.bodies.documents import (
    Choice,
    ContentChunk,
    Document,
    DocumentReader,
    Shape,
    is_cut_off,
    is_set,
    is_unrelated,
    loads_tolerantly,
    shape_of,
)
from consumer.core.bodies.sse import ServerSentEvent, SSEDecoder, looks_like_sse
from schemas import BadPayloadReason, IncompleteReason, ParsedResponse, SkipReason, Usage
from schemas.record import MAX_COUNT, MAX_TEXT

AROUND: Final = b"\xef\xbb\xbf \t\r\n"  # What may come before a body: BOM and white space.
DONE: Final = b"[DONE]"
# Answers have some 100,000 tokens; a body of more events is made to keep us busy.
_MAX_EVENTS: Final = 500_000
_COST_OF_DAMAGE: Final = 99  # Reading what is no JSON is dear.
_MAX_OTHER_IDS: Final = 7
_LONG_STREAM: Final = 4096
_LAST_EVENTS: Final = 4
_PIECE: Final = 1 << 14
_DATA: Final = b"data:"
_NEXT_DATA: Final = b"\n\ndata:"
_EVENT_END: Final = b"\n\n"
_ERROR: Final = Shape.ERROR  # See `shape_of`'s constants.
_API_EVENT: Final = Shape.API_EVENT
_WHOLE: Final = Shape.WHOLE
_STREAMED: Final = (Shape.CHUNK, Shape.API_EVENT)
_NO_RESPONSE: Final = (Shape.UNKNOWN, Shape.UNRELATED)
_AFTER_VALUE: Final = (b",", b"}", b"]")
_UNSEEN: Final = 1 << 200  # Above any order, whatever sequence a producer sends.
_decode_any: Final = msgspec.json.Decoder().decode
_decode_texts: Final = msgspec.json.Decoder(list[str]).decode
_API_ENDS: Final = frozenset(
    {"message_stop", "response.completed", "response.incomplete", "response.failed"}
)


class ResponseFacts(Struct, gc=False):
    """A response without its content.

    Attributes:
        response_id: id of the first document that has one.
        other_ids: further distinct ids, up to seven; with that many, ids tell nothing.
        choices: highest choice index seen, plus one.
        stats: raw JSON by declared place, the latest; empty where it was dropped for its size.
        documents: how many were folded in; content that was passed over is not counted.
        ended: whether an end mark or an API's own terminator was seen.
        failed: whether an error was seen.
        events: server-sent events and lines read; above a cap the rest is not.
        damaged: whether a chunk was not JSON, or not read.
        truncated: whether the last chunk broke off.
        without_stats: whether the API never carries statistics.

    """

    response_id: str | None = None
    other_ids: tuple[str, ...] = ()
    model: str | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    choices: int = 0
    stats: dict[str, bytes] | None = None
    documents: int = 0
    events: int = 0
    ended: bool = False
    failed: bool = False
    damaged: bool = False
    truncated: bool = False
    streamed: bool = False
    without_stats: bool = False
    id_order: int = _UNSEEN
    model_order: int = _UNSEEN
    finish_order: int = _UNSEEN
    prompt_order: int = -1
    completion_order: int = -1
    stats_order: dict[str, int] | None = None

    @property
    def too_large(self) -> bool:
        """Whether statistics were dropped for their size."""
        return self.stats is not None and b"" in self.stats.values()

    def spend(self, events: int = 1) -> bool:
        """Count what is read; False once it is more than any response has."""
        self.events += events
        if self.events <= _MAX_EVENTS:
            return True
        self.damaged = True
        return False

    def knows(self, document_id: str | None) -> bool:
        """Tell whether an id is one of this response's, as far as ids tell anything."""
        if document_id is None or len(self.other_ids) >= _MAX_OTHER_IDS:
            return True
        if self.response_id is None and not self.ended and not self.failed:
            return True  # It may have been on its way.
        name = document_id[:MAX_TEXT]
        return name == self.response_id or name in self.other_ids

    def parsed(self) -> ParsedResponse:
        """Return what adapters see."""
        return ParsedResponse(
            stats=self.stats or {},
            usage=self.usage,
            choices=max(self.choices, 1),
            finish_reason=self.finish_reason,
            model=self.model,
            streamed=self.streamed,
        )


class BodyReader:
    """Reads bodies and folds them; holds no state of any response.

    Args:
        document_reader: decoder of documents, which knows the declared places.
        max_stats_bytes: cap on the statistics kept at one place.

    """

    def __init__(self, document_reader: DocumentReader, max_stats_bytes: int) -> None:
        self.document_reader = document_reader
        self._max_stats_bytes = max_stats_bytes

    def fold_document(
        self, facts: ResponseFacts, document: Document, order: int, shape: Shape
    ) -> None:
        """Fold one document in.

        Args:
            facts: what is known of the response.
            document: the document, of any shape but `UNKNOWN` and `UNRELATED`.
            order: place of the chunk in its stream; a later one replaces an earlier one.
            shape: the document's shape.

        """
        facts.documents += 1
        if shape is _ERROR:
            facts.failed = True
        elif shape is _API_EVENT:
            self._fold_api_event(facts, document, order)
        if (name := document.id or response_id_of(document)) is not None:
            _take_id(facts, name, order)
        if document.model is not None:
            _take_model(facts, document.model, order)
        if document.choices:
            _take_choices(facts, document.choices, order)
        elif document.meta_info is not None:
            _take_generation(facts, document, order)
        if document.usage is not None:
            _take_usage(facts, document.usage, order)
        _take_finish(facts, document.stop_reason, order)
        if document.type == "message" or document.object == "response":
            facts.without_stats = True
        for place, stats in self.document_reader.stats(document):
            self._take_stats(facts, place, stats, order)

    def fold_event(self, facts: ResponseFacts, event: ServerSentEvent, order: int) -> None:
        """Fold one server-sent event in. After an end mark, nothing changes the response."""
        text = event.data.strip()
        if facts.ended or not text or not facts.spend():
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
            facts.spend(_COST_OF_DAMAGE)
            return
        shape = shape_of(document)
        if shape not in _NO_RESPONSE:
            self.fold_document(facts, document, order, shape)

    def fold_whole(
        self, facts: ResponseFacts, document: Document, shape: Shape, text: bytes, order: int = 0
    ) -> BadPayloadReason | SkipReason | None:
        """Fold a body in that is one document, which has been read already."""
        if shape in _NO_RESPONSE:
            if shape is Shape.UNRELATED or is_unrelated(text):
                return SkipReason.UNRELATED_BODY
            return BadPayloadReason.BODY_NOT_A_RESPONSE
        self.fold_document(facts, document, order, shape)
        facts.ended = facts.ended or shape is _WHOLE
        facts.streamed = shape in _STREAMED
        return None

    def fold_body(
        self, facts: ResponseFacts, body: bytes, order: int = 0
    ) -> BadPayloadReason | SkipReason | IncompleteReason | None:
        """Fold a whole body in: server-sent events, JSON, an array, or JSON lines.

        Args:
            facts: what is known of the response.
            body: the bytes.
            order: place of the body's first document in its stream.

        Returns:
            why nothing could be made of it, or None.

        """
        text = body.lstrip(AROUND)
        if not text:
            return IncompleteReason.EMPTY_BODY
        if text.rstrip() == DONE:
            return SkipReason.ORPHAN_END
        if text[:1] in (b"{", b"["):
            return self._fold_json(facts, text, order)
        if text[:1] == b"<" and text[:15].lower().startswith((b"<html", b"<!doctype html", b"<?x")):
            facts.failed = facts.ended = True  # The error page of a proxy in front of the server.
            return None
        if looks_like_sse(text):
            return self._fold_sse(facts, text, order)
        return BadPayloadReason.UNRECOGNISED_FORMAT

    def fold_stream(
        self, facts: ResponseFacts, decoder: SSEDecoder, text: bytes, first: int
    ) -> None:
        """Fold the next bytes of a stream in.

        Args:
            facts: what is known of the response.
            decoder: of the stream, which has had all bytes before.
            text: the bytes.
            first: place of the first event that they complete.

        """
        facts.streamed = True
        inside = content_inside(text)
        if inside is not None and not facts.ended:
            begin, end = inside  # Where an event ends, whatever the decoder held before.
            first = self._fold_events(facts, decoder, text[:begin], first)
            for piece in _pieces(text, begin, end):
                passed = self._pass_over(facts, piece, first)
                first = (
                    first + passed if passed else self._fold_events(facts, decoder, piece, first)
                )
            text = text[end:]
        self._fold_events(facts, decoder, text, first)

    def finish_stream(self, facts: ResponseFacts, decoder: SSEDecoder, order: int) -> None:
        """Fold in what a stream's decoder still holds when no more bytes will come."""
        for event in decoder.finish():
            damaged = facts.damaged
            self.fold_event(facts, event, order)
            if facts.damaged and not damaged:  # The last chunk broke off: cut, not corrupt.
                facts.damaged, facts.truncated = False, True

    def _fold_sse(
        self, facts: ResponseFacts, text: bytes, first: int
    ) -> BadPayloadReason | SkipReason | None:
        decoder = SSEDecoder()
        self.fold_stream(facts, decoder, text, first)
        self.finish_stream(facts, decoder, _UNSEEN - 1)
        if facts.documents or facts.damaged or facts.truncated:
            return None
        return SkipReason.ORPHAN_END if facts.ended else BadPayloadReason.BODY_NOT_A_RESPONSE

    def _fold_events(
        self, facts: ResponseFacts, decoder: SSEDecoder, text: bytes, first: int
    ) -> int:
        """Fold server-sent events in; return the order of the next one."""
        events = decoder.feed(text)
        for order, event in enumerate(events, first):
            self.fold_event(facts, event, order)
        return first + len(events)

    def _pass_over(self, facts: ResponseFacts, text: bytes, order: int) -> int:
        """Take server-sent events that bring nothing but content, without reading each.

        Returns:
            how many events the text has, or 0 if it may have others, and nothing was taken.

        """
        known = facts.choices and max(facts.id_order, facts.model_order) < order
        if not known or facts.ended or facts.failed:
            return 0
        joined = text[len(_DATA) : -len(_EVENT_END)]
        events = joined.split(_NEXT_DATA)
        chunks = self._read_alike(events, joined)
        if not chunks and text.count(b"\n") == 2 * len(events) and text.find(b"\r") < 0:
            chunks = self.document_reader.read_content(events)
        if {chunk.id for chunk in chunks} != {facts.response_id}:
            return 0
        if facts.events + len(events) > _MAX_EVENTS:
            return 0
        facts.events += len(events)
        facts.documents += len(events)
        return len(events)

    def _read_alike(self, events: list[bytes], joined: bytes) -> list[ContentChunk]:
        """Return a chunk for events of content that differ in one string alone; empty for others.

        One of them is read, and read again with another text in that string; of the others just
        the texts, once it is sure that nothing else is in them.
        """
        first = next((event for event in events if event.find(b"\\") < 0), events[0])
        other = next((event for event in events if event != first), None)
        if b"\n" in first or b"\r" in first:
            return []
        if other is None:
            return self.document_reader.read_content([first])
        begin = first.rfind(b'"', 0, _common(first, other)) + 1
        head, tail = first[:begin], first[first.find(b'"', begin) :]
        texts = [event[begin : -len(tail)] for event in events]
        if head + (tail + _NEXT_DATA + head).join(texts) + tail != joined:
            return []
        if tail[1:2] not in _AFTER_VALUE or not _are_texts(texts):
            return []
        chunk, changed = (
            self.document_reader.read_content([head + t + tail]) for t in (texts[0], b"x")
        )
        return chunk if chunk == changed else []

    def _fold_json(
        self, facts: ResponseFacts, text: bytes, order: int
    ) -> BadPayloadReason | SkipReason | IncompleteReason | None:
        if text.startswith(b"["):
            return self._fold_array(facts, text, order)
        document = self.document_reader.read(text)
        if isinstance(document, BadPayloadReason):
            return self.fold_unreadable(facts, document, text, order)
        return self.fold_whole(facts, document, shape_of(document), text, order)

    def fold_unreadable(
        self, facts: ResponseFacts, reason: BadPayloadReason, text: bytes, order: int = 0
    ) -> BadPayloadReason | IncompleteReason | None:
        """Fold a body in that begins as an object, and that was read as one in vain."""
        if reason is BadPayloadReason.INVALID_JSON:
            return self._fold_lines(facts, text, order)
        return reason

    def _fold_array(
        self, facts: ResponseFacts, text: bytes, first: int
    ) -> BadPayloadReason | SkipReason | IncompleteReason | None:
        """Fold the answer to several prompts, or a stream that a client collected."""
        entries = loads_tolerantly(text)
        if isinstance(entries, BadPayloadReason):
            return reason_for(text)
        if not entries:
            return SkipReason.EMPTY_BATCH
        chunks = False
        names: set[str | None] = set()
        for index, entry in enumerate(entries):
            document = self.document_reader.from_value(entry) if isinstance(entry, dict) else None
            shape = shape_of(document) if document else Shape.UNKNOWN
            if document is None or shape in (Shape.UNKNOWN, Shape.UNRELATED):
                return BadPayloadReason.BODY_NOT_A_RESPONSE
            if document.choices is None:
                document.index = index
            chunks = chunks or shape is Shape.CHUNK
            if shape is Shape.WHOLE:
                names.add(response_id_of(document))
            self.fold_document(facts, document, first + index, shape)
        facts.choices = max(facts.choices, len(names))  # Several responses are no one's generation.
        facts.streamed = chunks
        facts.ended = not chunks
        return None

    def _fold_lines(
        self, facts: ResponseFacts, text: bytes, first: int
    ) -> BadPayloadReason | IncompleteReason | None:
        """Fold JSON lines, as some servers stream; a single line that is no JSON is refused."""
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) == 1 or not all(line.startswith(b"{") for line in lines):
            return reason_for(text)
        facts.streamed = True
        names: set[str | None] = set()
        for order, line in enumerate(lines, first):
            if not facts.spend():
                break
            document = self.document_reader.read(line)
            if isinstance(document, BadPayloadReason):
                facts.damaged = True
                facts.spend(_COST_OF_DAMAGE)
                continue
            shape = shape_of(document)
            if shape is Shape.WHOLE:
                names.add(response_id_of(document))
            if shape not in _NO_RESPONSE:
                self.fold_document(facts, document, order, shape)
        if not facts.documents:
            return reason_for(text)
        facts.choices = max(facts.choices, len(names))
        if facts.damaged and not text.endswith(b"\n"):
            facts.damaged, facts.truncated = False, True
        return None

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
                if wrapped.id is not None:
                    _take_id(facts, wrapped.id, order)
                if wrapped.model is not None:
                    _take_model(facts, wrapped.model, order)
                if wrapped.usage is not None:
                    _take_usage(facts, wrapped.usage, order)
        if kind == "message_delta" and is_set(document.delta):
            delta = self.document_reader.read(bytes(document.delta))
            if isinstance(delta, Document):
                _take_finish(facts, delta.stop_reason, order)

    def _take_stats(self, facts: ResponseFacts, place: str, stats: bytes, order: int) -> None:
        if facts.stats is None or facts.stats_order is None:
            facts.stats, facts.stats_order = {}, {}
        if order < facts.stats_order.get(place, -1):
            return
        facts.stats[place] = stats if len(stats) <= self._max_stats_bytes else b""
        facts.stats_order[place] = order


def content_inside(text: bytes) -> tuple[int, int] | None:
    """Return where in a long stream nearly always nothing but content is.

    That is all but the first event, which says what the stream is, and the last ones, of which
    the finish reason, the counts, the numbers and the end mark each have one.
    """
    if len(text) < _LONG_STREAM or not text.startswith(_DATA):
        return None
    begin, end = text.find(_NEXT_DATA), len(text)
    for _ in range(_LAST_EVENTS):
        end = text.rfind(_NEXT_DATA, 0, end)
    return (begin + 2, end + 2) if 0 <= begin < end else None


def _common(one: bytes, other: bytes) -> int:
    """Return how many bytes two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _are_texts(texts: list[bytes]) -> bool:
    """Tell whether each of the texts, which have no line ends, is fit for a string of JSON."""
    try:
        # The line ends keep a text that ends in a backslash from reaching into the next one.
        found = _decode_texts(b'["%b"]' % b'"\n,"'.join(texts))
    except msgspec.MsgspecError:
        return False
    return len(found) == len(texts)


def _pieces(text: bytes, begin: int, end: int) -> Iterator[bytes]:
    """Cut a part of a stream between events; one that is odd then costs its piece alone."""
    while begin < end:
        border = text.find(_NEXT_DATA, begin + _PIECE, end)
        cut = end if border < 0 else border + 2
        yield text[begin:cut]
        begin = cut


def response_id_of(document: Document) -> str | None:
    """Return the id that a document gives its response."""
    return document.id or document.request_id or _meta_text(document, "id")


def _take_id(facts: ResponseFacts, name: str, order: int) -> None:
    name, known = name[:MAX_TEXT], facts.response_id
    if order < facts.id_order:
        facts.response_id, facts.id_order = name, order
    if known is None or (name == known and name == facts.response_id):
        return
    ids = dict.fromkeys((*facts.other_ids, known, name))
    ids.pop(facts.response_id or "")
    facts.other_ids = tuple(ids)[:_MAX_OTHER_IDS]


def _take_model(facts: ResponseFacts, model: str, order: int) -> None:
    if order < facts.model_order:
        # Interned, since few models are served and each open request keeps its own.
        facts.model, facts.model_order = sys.intern(model[:MAX_TEXT]), order


def _take_finish(facts: ResponseFacts, reason: str | None, order: int) -> None:
    if reason is not None and order < facts.finish_order:
        facts.finish_reason, facts.finish_order = reason[:MAX_TEXT], order


def _take_choices(facts: ResponseFacts, choices: Sequence[Choice], order: int) -> None:
    for choice in choices:
        if choice.index >= facts.choices:
            facts.choices = choice.index + 1
        if choice.finish_reason is not None:
            _take_finish(facts, choice.finish_reason, order)


def _take_generation(facts: ResponseFacts, document: Document, order: int) -> None:
    """Fold a native generation, whose counts and end stand in `meta_info`."""
    meta = document.meta_info or {}
    if document.index >= facts.choices:
        facts.choices = document.index + 1
    _take_usage(facts, meta, order)
    finish = meta.get("finish_reason")
    if finish is None or not is_set(finish) or order >= facts.finish_order:
        return
    reason = _decoded(finish)
    if isinstance(reason, dict):
        reason = reason.get("type")
    if isinstance(reason, str):
        _take_finish(facts, reason, order)


def _take_usage(facts: ResponseFacts, usage: dict[str, Raw], order: int) -> None:
    """Keep the latest counts; a later usage without one of them does not take it away."""
    known = facts.usage
    prompt = _count(usage, "prompt_tokens", "input_tokens")
    completion = _count(usage, "completion_tokens", "output_tokens")
    if prompt is not None and order >= facts.prompt_order:
        facts.prompt_order = order
    else:
        prompt = None if known is None else known.prompt_tokens
    if completion is not None and order >= facts.completion_order:
        facts.completion_order = order
    else:
        completion = None if known is None else known.completion_tokens
    if prompt is not None or completion is not None:
        facts.usage = Usage(prompt, completion)


def _count(members: dict[str, Raw], name: str, other: str) -> int | None:
    """Return the count of the first of two names that has one."""
    for raw in (members.get(name), members.get(other)):
        if raw is not None:
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


def reason_for(text: bytes) -> BadPayloadReason | IncompleteReason:
    """Tell a body that was cut from one that was never JSON."""
    try:
        msgspec.json.decode(text, type=Raw)
    except msgspec.DecodeError as error:
        if is_cut_off(error):
            return IncompleteReason.TRUNCATED
    except RecursionError:
        return BadPayloadReason.TOO_DEEP
    return BadPayloadReason.INVALID_JSON
