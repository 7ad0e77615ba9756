"""What the service makes of one message, step by step: the core's own answers, put in order.

Pure, as the core is: messages in, an explanation out. Nothing is decoded here that the core has not
decoded. Of a payload, ids, numbers and names get into an explanation; its text only if asked for.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Struct

from consumer.commands.terminal import outcome_text
from consumer.core.adapters.protocol import SpecDecodeAdapter
from consumer.core.adapters.registry import Adapters
from consumer.core.bodies.body_reader import AROUND
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.json_text import raw_members
from consumer.core.bodies.shapes import Shape
from consumer.core.dead_letters import digest, letter_of_request
from consumer.core.envelopes.recognise import Envelope
from consumer.core.message import Message, headers_of
from consumer.core.outcomes import RequestResult
from consumer.core.partition import MessageResult, Partition, Pipeline
from consumer.core.redaction import preview as preview_of
from consumer.core.response_event import BadEvent, Event, EventKind, Opened
from consumer.core.times import milliseconds, rfc3339
from consumer.telemetry.outcome_reporter import LETTER_OUTCOMES
from schemas import (
    BadPayloadReason,
    DeadLetter,
    MessageOutcome,
    ParsedResponse,
    PublishedRecord,
    RequestOutcome,
    SkipReason,
)

MAX_PREVIEW: Final = 4096
_MAX_KEY: Final = 128
_MAX_MEMBERS: Final = 32
_MAX_NAME: Final = 64
_MAX_TOP_MEMBERS: Final = 12
_MAX_TOP_NAME: Final = 40
_NO_RESPONSE: Final = (Shape.UNKNOWN, Shape.UNRELATED)
LATE: Final = (SkipReason.LATE_REPEAT, SkipReason.REPEATED_RESPONSE)
_DUPLICATE: Final = SkipReason.DUPLICATE
_REPEATS: Final = (*LATE, _DUPLICATE)
_ACCEPTED: Final = MessageOutcome.ACCEPTED
_WHOLE: Final = "whole response"
_EVENTS: Final[Mapping[EventKind, str]] = {
    EventKind.CHUNK: "chunk",
    EventKind.SEGMENT: "segment",
    EventKind.END: "end",
    EventKind.WHOLE: _WHOLE,
}
_LETTER: Final = "none: a dead letter of this service, which dead-letters --show reads"
_decode_letter: Final = msgspec.json.Decoder(DeadLetter).decode
# Name and settings of the core under which an envelope is the only one that is tried.
_ENVELOPES: Final[Mapping[Envelope, str | None]] = {
    "native": "native event",
    "mapped": "home-made event, read by the setting paths",
    "cloudevents": "CloudEvent",
    "body": "response body as it was sent",
    "unknown": None,
}

Key = tuple[str, str | None]  # Source and request id.


class RequestEvent(Struct, frozen=True):
    """One message of a request, with what became of it."""

    offset: int
    event: str
    attempt: int | None
    sequence: int | None
    outcome: str


class PlaceSeen(Struct, frozen=True):
    """A place that an adapter declares; names of the members that stand there, if it is filled."""

    place: str
    filled: bool
    members: tuple[str, ...] = ()


class AdapterAnswer(Struct, frozen=True):
    """What one adapter says of a response.

    Attributes:
        name: its engine, with its module where several adapters are of one engine.
        engine: its engine.
        places: the places that it reads.
        claims: whether it claims the response.
        raised: name of the exception that it raised when it was asked.
        missing: names by which it knows its numbers that stand at none of its places.

    """

    name: str
    engine: str
    places: tuple[PlaceSeen, ...]
    claims: bool
    raised: str | None = None
    missing: tuple[str, ...] = ()


class ExplainedRequest(Struct, frozen=True):
    """The request that an event belongs to, and what became of it.

    Attributes:
        parts: messages of its stream among those that were read.
        still_open: whether it was open at the end of what was read; what is told then is what its
            timeout would make of it.
        seen_whole: False if messages of it may lie before what was read.
        stats: numbers at the declared places, every text taken out.

    """

    request_id: str | None
    attempt: int
    first_offset: int
    first_index: int
    last_offset: int
    parts: tuple[RequestEvent, ...]
    still_open: bool
    seen_whole: bool
    outcome: str
    reason: str | None
    meaning: str
    detail: str | None
    incomplete: str | None
    choices: int | None
    stats: dict[str, Any] | None
    adapters: tuple[AdapterAnswer, ...]
    failures: tuple[tuple[str, str], ...]
    dead_letter: bool
    record: PublishedRecord | None


class Body(Struct, frozen=True):
    """What the body of one event says by itself; `stats` are the bytes at each declared place."""

    response_id: str | None
    model: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    choices: int
    finish_reason: str | None
    streamed: bool
    ended: bool
    failed: bool
    truncated: bool
    damaged: bool
    stats: dict[str, int]


class Entry(Struct, frozen=True):
    """One event of the message, or why an entry of it is none."""

    index: int
    event: str | None
    refused: str | None = None
    detail: str | None = None
    source: str | None = None
    request_id: str | None = None
    sequence: int | None = None
    final: bool = False
    attempt: int | None = None
    time: str | None = None
    failed: bool = False
    segment_bytes: int | None = None
    body: Body | None = None
    request: ExplainedRequest | None = None


class UnknownObject(Struct, frozen=True):
    """A JSON object that is no known envelope or response body.

    Attributes:
        members: names of its first members. They may be content: they are for whoever has asked
            about the message, and for no log.
        count: of all its members.
        lacks_request_id: whether it has the body of a native event, and no `request_id`.

    """

    members: tuple[str, ...]
    count: int
    lacks_request_id: bool


class Explanation(Struct, frozen=True):
    """What the service makes of a message.

    Attributes:
        envelope: the envelope that it came in; None if it has none that is known.
        outcome: of the message, with `reason`, what that means, and `detail`.
        read_first: offset of the first message that was read to find this out.
        read_last: offset of the last one.
        unknown: the JSON object that it is, if its shape is not known.

    """

    topic: str
    partition: int
    offset: int
    timestamp: str | None
    key: str | None
    size: int
    digest: str
    headers: tuple[str, ...] | None
    envelope: str | None
    outcome: str
    reason: str | None
    meaning: str
    detail: str | None
    entries: tuple[Entry, ...]
    read_first: int
    read_last: int
    unknown: UnknownObject | None = None
    payload: str | None = None


def explain(
    pipeline: Pipeline,
    target: Message,
    messages: Iterable[Message],
    *,
    from_beginning: bool,
    preview: int = 0,
) -> Explanation:
    """Explain a message.

    Args:
        pipeline: the core.
        target: the message. Like all others it can be read more than once.
        messages: messages of its partition in order, itself among them; no more are taken than it
            takes to see what becomes of its requests.
        from_beginning: whether the first of them is the first of the partition.
        preview: bytes of payload to show.

    """
    envelope, opened = pipeline.recogniser.open(target)
    told = _Told(pipeline, target, opened if isinstance(opened, list) else [opened])
    for message in messages:
        told.feed(message)
        if told.complete:
            break
    told.close()
    outcome = told.outcome
    value, key = target.value() or b"", target.key()
    headers = headers_of(target.headers)
    kind, stamp = target.timestamp()
    is_letter = outcome.outcome is not _ACCEPTED and _is_letter(value)
    unknown = outcome.reason is BadPayloadReason.UNRECOGNISED_SHAPE and not is_letter
    return Explanation(
        topic=target.topic() or "",
        partition=target.partition() or 0,
        offset=target.offset() or 0,
        timestamp=rfc3339(milliseconds(stamp if kind else -1)),
        key=None if key is None else key[:_MAX_KEY].decode("utf-8", "replace"),
        size=len(value),
        digest=digest(value),
        headers=None if headers is None else tuple(name for name, _ in headers),
        envelope=_LETTER if is_letter else _ENVELOPES[envelope],
        outcome=outcome.outcome,
        reason=outcome.reason,
        meaning=(outcome.reason or outcome.outcome).explanation,
        detail=outcome.detail,
        entries=told.entries(from_beginning=from_beginning),
        read_first=told.first_offset,
        read_last=told.last_offset,
        unknown=_unknown_object(pipeline, value) if unknown else None,
        payload=preview_of(value, preview) if preview else None,
    )


class _Told:
    """What the core tells of the requests of one message while it is fed the messages around it."""

    def __init__(self, pipeline: Pipeline, target: Message, opened: list[Opened]) -> None:
        self.first_offset = self.last_offset = target.offset() or 0
        self._pipeline = pipeline
        self._target = target
        self._offset = target.offset() or 0
        self._opened = opened
        self._keys = {_key(event) for event in opened if isinstance(event, Event)}
        self._partition: Partition | None = None
        self._verdict: MessageResult | None = None
        self._first_time = -1
        self._before: list[RequestResult] = []  # Told before the message came.
        self._after: list[RequestResult] = []
        self._parts: dict[Key, list[RequestEvent]] = {}
        self._closed_from = 0  # What of `_after` was told because reading ended.

    @property
    def outcome(self) -> MessageResult:
        """The outcome of the message."""
        assert self._verdict is not None  # noqa: S101 - it is among the messages that were fed.
        return self._verdict

    @property
    def complete(self) -> bool:
        """Whether all is known that can be told of the message's requests."""
        if self._verdict is None:
            return False
        if self._verdict.outcome is not _ACCEPTED and self._verdict.reason is not _DUPLICATE:
            return True
        return all(
            self._result(index, event) is not None
            for index, event in enumerate(self._opened)
            if isinstance(event, Event)
        )

    def feed(self, message: Message) -> None:
        """Feed the next message."""
        offset = message.offset() or 0
        if self._partition is None:
            self.first_offset = offset
            kind, stamp = message.timestamp()
            self._first_time = stamp if kind else -1
            self._partition = self._pipeline.partition(
                self._target.topic() or "", self._target.partition() or 0, offset
            )
        self.last_offset = offset
        result = self._partition.feed(message)
        if offset == self._offset:
            self._verdict = result
        self._note_parts(message, result)
        self._drain(self._partition)

    def close(self) -> None:
        """Close what is open, since no more is read."""
        self._closed_from = len(self._after)
        if self._partition is not None and not self.complete:
            self._partition.close_all()
            self._drain(self._partition)

    def entries(self, *, from_beginning: bool) -> tuple[Entry, ...]:
        """Return what is to be said of each event."""
        return tuple(
            self._entry(index, event, from_beginning=from_beginning)
            for index, event in enumerate(self._opened)
        )

    def _drain(self, partition: Partition) -> None:
        told = self._before if self._verdict is None else self._after
        told += (
            result
            for result in partition.drain()
            if (result.response.source, result.response.request_id) in self._keys
        )

    def _note_parts(self, message: Message, result: MessageResult) -> None:
        _, opened = self._pipeline.recogniser.open(message)
        for event in opened if isinstance(opened, list) else [opened]:
            if isinstance(event, Event) and _key(event) in self._keys:
                part = RequestEvent(
                    message.offset() or 0,
                    _named_event(event),
                    event.attempt,
                    event.sequence,
                    outcome_text(result.outcome, result.reason),
                )
                self._parts.setdefault(_key(event), []).append(part)

    def _result(self, index: int, event: Event) -> RequestResult | None:
        """Return the outcome of the request that an event belongs to."""
        place, reason = (self._offset, index), self.outcome.reason
        # What it repeats may have been closed by the time that came with it.
        results = [*self._before, *self._after] if reason in LATE else self._after
        found = [
            result
            for result in results
            if (result.response.source, result.response.request_id) == _key(event)
            and (event.attempt is None or result.response.attempt == event.attempt)
            and result.response.place <= place
            and (reason in _REPEATS or result.response.last_offset >= self._offset)
        ]
        return max(found, key=lambda result: result.response.place, default=None)

    def _entry(self, index: int, opened: Opened, *, from_beginning: bool) -> Entry:
        if isinstance(opened, BadEvent):
            return Entry(index, None, outcome_text("bad_payload", opened.reason), opened.detail)
        if isinstance(opened, SkipReason):
            return Entry(index, None, outcome_text("skipped", opened))
        result = self._result(index, opened)
        return Entry(
            index,
            _named_event(opened),
            source=opened.source or None,
            request_id=opened.request_id,
            sequence=opened.sequence,
            final=opened.final,
            attempt=opened.attempt,
            time=rfc3339(opened.time),
            failed=opened.failed,
            segment_bytes=len(opened.segment) if opened.segment else None,
            body=_body(self._pipeline, opened),
            request=None if result is None else self._request(result, from_beginning),
        )

    def _request(self, result: RequestResult, from_beginning: bool) -> ExplainedRequest:
        response, facts = result.response, result.response.facts
        parsed = None if facts is None else facts.parsed()
        key = (response.source, response.request_id)
        parts = [
            part
            for part in self._parts.get(key, ())
            if part.attempt in (None, response.attempt)
            and (
                response.place[0] <= part.offset <= response.last_offset
                or part.offset == self._offset  # What comes late is after its end.
            )
        ]
        assert self._partition is not None  # noqa: S101 - there is a result of it.
        letter = letter_of_request(result, self._partition.origin)
        limits = self._pipeline.options.limits
        window = limits.idle_timeout_ms + limits.duplicate_window_ms
        return ExplainedRequest(
            request_id=response.request_id,
            attempt=response.attempt,
            first_offset=response.place[0],
            first_index=response.place[1],
            last_offset=response.last_offset,
            parts=tuple(parts),
            still_open=any(result is late for late in self._after[self._closed_from :]),
            seen_whole=from_beginning
            or response.timestamp - self._first_time >= window
            or parts[0].sequence == 0
            or (response.incomplete is None and parts[0].sequence is None),
            outcome=result.outcome,
            reason=result.reason,
            meaning="An acceptance record would be published."
            if result.outcome is RequestOutcome.PUBLISHED
            else (result.reason or result.outcome).explanation,
            detail=result.detail,
            incomplete=response.incomplete,
            choices=None if parsed is None else parsed.choices,
            stats=letter.stats,
            adapters=() if parsed is None else _answers(self._pipeline.adapters, parsed),
            failures=result.failures,
            dead_letter=result.outcome in LETTER_OUTCOMES,
            record=result.record,
        )


def _key(event: Event) -> Key:
    return event.source, event.request_id


def _named_event(event: Event) -> str:
    if event.kind is EventKind.CHUNK and event.shape is Shape.WHOLE:
        return _WHOLE
    if event.kind is EventKind.SEGMENT and not event.segment:
        return "no body"
    return _EVENTS[event.kind]


def _is_letter(value: bytes) -> bool:
    try:
        _decode_letter(value)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _unknown_object(pipeline: Pipeline, value: bytes) -> UnknownObject | None:
    members = raw_members(value.lstrip(AROUND))
    if not isinstance(members, dict):
        return None
    return UnknownObject(
        tuple(map(_shown_name, islice(members, _MAX_TOP_MEMBERS))),
        len(members),
        lacks_request_id=pipeline.options.envelope in ("auto", "native")
        and "request_id" not in members
        and not members.keys().isdisjoint(("body", "body_base64")),
    )


def _shown_name(name: str) -> str:
    """Cut a name that anybody may have chosen, and mask what looks like a credential."""
    longest = 4 * _MAX_TOP_NAME  # In bytes.
    return preview_of(name.encode(), longest)[:_MAX_TOP_NAME]


def _body(pipeline: Pipeline, event: Event) -> Body | None:
    """Return what an event's body says by itself; None if it has none."""
    facts = event.facts
    if facts is None:
        facts = ResponseFacts()
        if event.document is not None and event.shape not in _NO_RESPONSE:
            pipeline.body_reader.fold_document(facts, event.document, 0, event.shape)
        elif event.segment:
            pipeline.body_reader.fold_body(facts, event.segment)
        else:
            return None
    usage = facts.usage
    return Body(
        response_id=facts.response_id,
        model=facts.model,
        prompt_tokens=usage.prompt_tokens if usage else None,
        completion_tokens=usage.completion_tokens if usage else None,
        choices=facts.choices,
        finish_reason=facts.finish_reason,
        streamed=facts.streamed,
        ended=facts.ended,
        failed=facts.failed,
        truncated=facts.truncated,
        damaged=facts.damaged,
        stats={place: len(raw) for place, raw in (facts.stats or {}).items()},
    )


def _answers(adapters: Adapters, response: ParsedResponse) -> tuple[AdapterAnswer, ...]:
    """Ask the adapters whether they claim a response; none is asked where it has no statistics."""
    of_engine = Counter(adapter.engine for adapter in adapters)
    return tuple(
        _answer(
            adapter,
            adapter.engine
            if of_engine[adapter.engine] == 1
            else f"{adapter.engine} ({adapter.__module__})",
            response,
        )
        for adapter in adapters
    )


def _answer(adapter: type[SpecDecodeAdapter], name: str, response: ParsedResponse) -> AdapterAnswer:
    members = {place: _members(response.stats.get(place)) for place in adapter.places}
    places = tuple(
        PlaceSeen(place, place in response.stats, names[:_MAX_MEMBERS])
        for place, names in members.items()
    )
    try:
        claims = bool(response.stats) and bool(adapter.can_adapt([response]))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything.
        return AdapterAnswer(
            name, adapter.engine, places, claims=False, raised=type(error).__name__
        )
    there = {member for names in members.values() for member in names}
    own: tuple[str, ...] = getattr(adapter, "own_keys", ())
    missing = () if claims else tuple(key for key in own if key not in there)
    return AdapterAnswer(name, adapter.engine, places, claims, missing=missing)


def _members(raw: bytes | None) -> tuple[str, ...]:
    """Return the names of the members at a place: names are no content, values may be."""
    try:
        value = msgspec.json.decode(raw or b"null")
    except (msgspec.MsgspecError, RecursionError):
        return ()
    if isinstance(value, list) and value:
        value = value[0]
    return tuple(name[:_MAX_NAME] for name in value) if type(value) is dict else ()
