"""What the core makes of one message and its requests, collected while it is fed a log.

Pure, as the core is: messages in, an explanation out. An explanation holds the core's own results,
which `text` and `as_json` render; both show ids, numbers and names, and text of a payload only on
request.
"""

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Final

import msgspec
from msgspec import Raw, Struct

from consumer.commands.exit_codes import CommandError
from consumer.commands.explain.adapter_answers import AdapterAnswer, ask_adapters
from consumer.commands.terminal import outcome_text
from consumer.core.bodies.body_reader import BOM_AND_SPACE
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.json_text import raw_members
from consumer.core.bodies.shapes import NOT_A_RESPONSE, Shape
from consumer.core.dead_letters import letter_of_request
from consumer.core.envelopes.member_paths import EventMembers, parse_path
from consumer.core.envelopes.value_opener import Steps
from consumer.core.message import Message
from consumer.core.outcomes import RequestResult
from consumer.core.partition import MessageResult, Pipeline
from consumer.core.reassembly.response import Response
from consumer.core.redaction import preview as preview_of
from consumer.core.response_event import Event, EventKind, Opened
from schemas import BadPayloadReason, DeadLetter, MessageOutcome, SkipReason

MAX_PREVIEW: Final = 4096
LATE: Final = (SkipReason.LATE_REPEAT, SkipReason.REPEATED_RESPONSE)
_DUPLICATE: Final = SkipReason.DUPLICATE
_REPEATS: Final = (*LATE, _DUPLICATE)
_ACCEPTED: Final = MessageOutcome.ACCEPTED
_MAX_TOP_MEMBERS: Final = 12
_MAX_TOP_NAME: Final = 40
_EVENT_NAMES: Final = {
    EventKind.CHUNK: "chunk",
    EventKind.SEGMENT: "segment",
    EventKind.END: "end",
    EventKind.WHOLE: "whole response",
}
_decode_letter: Final = msgspec.json.Decoder(DeadLetter).decode

SourceAndId = tuple[str, str | None]
"""Source and request id."""


class RequestEvent(Struct, frozen=True):
    """One event of a request, with the outcome of its message."""

    offset: int
    event: str
    attempt: int | None
    sequence: int | None
    outcome: str


class ExplainedRequest(Struct, frozen=True):
    """The request that an event belongs to.

    Attributes:
        result: its outcome.
        letter: its dead letter, if the service writes one for this outcome; its statistics are
            the numbers at the declared places.
        parts: the events of its stream that were read.
        still_open: whether it was open after the last message; its outcome is then that of its
            timeout.
        seen_whole: False if messages of it may lie before the first one that was read.
        adapters: what each adapter answers; empty where the response could not be read.

    """

    result: RequestResult
    letter: DeadLetter
    parts: tuple[RequestEvent, ...]
    still_open: bool
    seen_whole: bool
    adapters: tuple[AdapterAnswer, ...]


class ExplainedEvent(Struct, frozen=True):
    """One event of the message, or the reason why an entry of it is not an event.

    Attributes:
        opened: the event or the reason.
        steps: what was opened on the way to it, outermost first.
        facts: what the body of the event says by itself; None if it has no body.
        request: the request of the event, if it ends among the messages that were read.

    """

    opened: Opened
    steps: Steps = ()
    facts: ResponseFacts | None = None
    request: ExplainedRequest | None = None


class UnknownObject(Struct, frozen=True):
    """A JSON object that is neither a known envelope nor a response body.

    Attributes:
        members: names of its first members, which may be content: never log them.
        count: number of all members.
        lacks_request_id: whether it has the body of a native event without a `request_id`.
        missing: the members that the setting `paths` does not find, and their paths.
        only: the one envelope that the setting `envelope` lets count; None for all.

    """

    members: tuple[str, ...]
    count: int
    lacks_request_id: bool
    missing: dict[str, str]
    only: str | None


class Explanation(Struct, frozen=True):
    """What the core makes of a message.

    Attributes:
        message: the message.
        envelope: its envelope; None for a dead letter of this service.
        result: its outcome.
        events: its events.
        first_offset: offset of the first message that was read.
        last_offset: offset of the last one.
        unknown: the JSON object that it is, if its shape is unknown.
        preview: the beginning of its payload, on request.

    """

    message: Message
    envelope: str | None
    result: MessageResult
    events: tuple[ExplainedEvent, ...]
    first_offset: int
    last_offset: int
    unknown: UnknownObject | None
    preview: str | None


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
        target: the message. It can be read more than once, as all others.
        messages: messages of its partition in order, the target among them; reading stops when
            the outcomes of its requests are known.
        from_beginning: whether the first of them is the first of the partition.
        preview: bytes of payload to show.

    Raises:
        CommandError: the target is not among the messages.

    """
    envelope, opened = pipeline.opener.open(target)
    remaining = iter(messages)
    first = next(remaining, target)
    explainer = _Explainer(
        pipeline, target, opened if isinstance(opened, list) else [opened], first
    )
    for message in chain((first,), remaining):
        explainer.feed(message)
        if explainer.is_complete:
            break
    explainer.close()
    result = explainer.result
    if result is None:
        raise CommandError("the message was deleted while the command read the messages before it")
    value = target.value() or b""
    is_letter = result.outcome is not _ACCEPTED and _is_letter(value)
    is_unknown = result.reason is BadPayloadReason.UNRECOGNISED_SHAPE and not is_letter
    return Explanation(
        message=target,
        envelope=None if is_letter else envelope,
        result=result,
        events=explainer.explained_events(result, from_beginning=from_beginning),
        first_offset=first.offset() or 0,
        last_offset=explainer.last_offset,
        unknown=_unknown_object(pipeline, value) if is_unknown else None,
        preview=preview_of(value, preview) if preview else None,
    )


def event_name(event: Event) -> str:
    """Return what an event carries, in words."""
    if event.kind is EventKind.CHUNK and event.shape is Shape.WHOLE:
        return _EVENT_NAMES[EventKind.WHOLE]
    if event.kind is EventKind.SEGMENT and not event.segment:
        return "no body"
    return _EVENT_NAMES[event.kind]


class _Explainer:
    """Feeds a partition, and collects the results that are about one message.

    Attributes:
        result: outcome of the message, once it was fed.
        last_offset: offset of the last message.

    """

    def __init__(
        self, pipeline: Pipeline, target: Message, opened: list[Opened], first: Message
    ) -> None:
        self.result: MessageResult | None = None
        self.last_offset = self._offset = target.offset() or 0
        self._pipeline = pipeline
        self._target = target
        self._opened = opened
        self._keys = {_key(event) for event in opened if isinstance(event, Event)}
        self._partition = pipeline.partition(
            target.topic() or "", target.partition() or 0, first.offset() or 0
        )
        kind, stamp = first.timestamp()
        self._first_time = stamp if kind else -1
        self._before: list[RequestResult] = []  # Of requests that ended before the message.
        self._after: list[RequestResult] = []
        self._closed_from = 0  # Index in `_after` of the first request that `close` ended.
        self._parts: dict[SourceAndId, list[RequestEvent]] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the outcomes of all requests of the message are known."""
        result = self.result
        if result is None:
            return False
        if result.outcome is not _ACCEPTED and result.reason is not _DUPLICATE:
            return True
        return all(
            self._request_result(index, event, result) is not None
            for index, event in enumerate(self._opened)
            if isinstance(event, Event)
        )

    def feed(self, message: Message) -> None:
        """Feed the next message."""
        self.last_offset = message.offset() or 0
        result = self._partition.feed(message)
        if self.last_offset == self._offset:
            self.result = result
        self._add_parts(message, result)
        self._drain()

    def close(self) -> None:
        """End open requests as their timeout would."""
        self._closed_from = len(self._after)
        if not self.is_complete:
            self._partition.close_all()
            self._drain()

    def explained_events(
        self, result: MessageResult, *, from_beginning: bool
    ) -> tuple[ExplainedEvent, ...]:
        """Return the events of the message, of which the core made `result`."""
        trail = self._pipeline.opener.trail(self._target)
        steps = trail.steps if trail is not None else [()] * len(self._opened)
        return tuple(
            self._explained_event(index, opened, steps[index], result, from_beginning)
            for index, opened in enumerate(self._opened)
        )

    def _drain(self) -> None:
        results = self._before if self.result is None else self._after
        results += (one for one in self._partition.drain() if _key(one.response) in self._keys)

    def _add_parts(self, message: Message, result: MessageResult) -> None:
        _, opened = self._pipeline.opener.open(message)
        for event in opened if isinstance(opened, list) else [opened]:
            if isinstance(event, Event) and _key(event) in self._keys:
                part = RequestEvent(
                    message.offset() or 0,
                    event_name(event),
                    event.attempt,
                    event.sequence,
                    outcome_text(result.outcome, result.reason),
                )
                self._parts.setdefault(_key(event), []).append(part)

    def _request_result(
        self, index: int, event: Event, result: MessageResult
    ) -> RequestResult | None:
        """Return the outcome of the request that an event belongs to."""
        place, reason = (self._offset, index), result.reason
        # The time of a late event may itself have ended the request that it repeats.
        results = [*self._before, *self._after] if reason in LATE else self._after
        found = [
            one
            for one in results
            if _key(one.response) == _key(event)
            and (event.attempt is None or one.response.attempt == event.attempt)
            and one.response.place <= place
            and (reason in _REPEATS or one.response.last_offset >= self._offset)
        ]
        return max(found, key=lambda one: one.response.place, default=None)

    def _explained_event(
        self,
        index: int,
        opened: Opened,
        steps: Steps,
        result: MessageResult,
        from_beginning: bool,
    ) -> ExplainedEvent:
        if not isinstance(opened, Event):
            return ExplainedEvent(opened, steps)
        found = self._request_result(index, opened, result)
        return ExplainedEvent(
            opened,
            steps,
            _facts_of(self._pipeline, opened),
            None if found is None else self._explained_request(found, from_beginning),
        )

    def _explained_request(self, result: RequestResult, from_beginning: bool) -> ExplainedRequest:
        response = result.response
        parts = [
            part
            for part in self._parts.get(_key(response), ())
            if part.attempt in (None, response.attempt)
            and (
                response.place[0] <= part.offset <= response.last_offset
                or part.offset == self._offset  # A late event follows the end.
            )
        ]
        limits = self._pipeline.options.limits
        window = limits.idle_timeout_ms + limits.duplicate_window_ms
        facts = response.facts
        return ExplainedRequest(
            result=result,
            letter=letter_of_request(result, self._partition.origin),
            parts=tuple(parts),
            still_open=any(result is closed for closed in self._after[self._closed_from :]),
            seen_whole=from_beginning
            or response.timestamp - self._first_time >= window
            or parts[0].sequence == 0
            or (response.incomplete is None and parts[0].sequence is None),
            adapters=() if facts is None else ask_adapters(self._pipeline.adapters, facts.parsed()),
        )


def _key(one: Event | Response) -> SourceAndId:
    return one.source, one.request_id


def _facts_of(pipeline: Pipeline, event: Event) -> ResponseFacts | None:
    """Return what the body of an event says by itself; None if it has none."""
    if event.facts is not None:
        return event.facts
    facts = ResponseFacts()
    if event.document is not None and event.shape not in NOT_A_RESPONSE:
        pipeline.body_reader.fold_document(facts, event.document, 0, event.shape)
    elif event.segment:
        pipeline.body_reader.fold_body(facts, event.segment)
    else:
        return None
    return facts


def _is_letter(value: bytes) -> bool:
    try:
        _decode_letter(value)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _unknown_object(pipeline: Pipeline, value: bytes) -> UnknownObject | None:
    members = raw_members(value.lstrip(BOM_AND_SPACE))
    if not isinstance(members, dict):
        return None
    return UnknownObject(
        tuple(map(_masked_name, islice(members, _MAX_TOP_MEMBERS))),
        len(members),
        lacks_request_id=pipeline.options.envelope in ("auto", "native")
        and "request_id" not in members
        and not members.keys().isdisjoint(("body", "body_base64")),
        missing=_missing_members(EventMembers(members), pipeline.options.paths),
        only=None if pipeline.options.envelope == "auto" else pipeline.options.envelope,
    )


def _missing_members(members: EventMembers, paths: Mapping[str, str]) -> dict[str, str]:
    """Return the members without which the setting `paths` reads no event, where they are not."""
    needed = ("each",) if "each" in paths else ("request_id", "body", "body_base64")
    return {
        name: paths[name]
        for name in needed
        if name in paths and not _leads_to(members.at(parse_path(paths[name])), name)
    }


def _leads_to(found: Raw | None, name: str) -> bool:
    return found is not None and (name != "each" or bytes(found).startswith(b"["))


def _masked_name(name: str) -> str:
    """Shorten a name that a producer chose, and mask what looks like a credential."""
    return preview_of(name.encode(), 4 * _MAX_TOP_NAME)[:_MAX_TOP_NAME]
