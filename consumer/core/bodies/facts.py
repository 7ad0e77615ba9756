"""What is known of one response so far, without its content.

Facts do not depend on the order in which chunks arrive: whatever a later chunk can replace
remembers the order of the chunk that it came from.
"""

import sys
from typing import Final

from msgspec import Struct

from schemas import ParsedResponse, Usage
from schemas.record import MAX_TEXT

UNSEEN: Final = 1 << 200  # Above any order, whatever sequence a producer sends.
# An answer has at most about 100,000 tokens; more events than this are an attack.
MAX_EVENTS: Final = 120_000
_MAX_OTHER_IDS: Final = 7


class ResponseFacts(Struct, gc=False):
    """A response without its content.

    Attributes:
        response_id: id of the first document that has one.
        other_ids: further distinct ids, up to seven; once there are seven, every id may be its own.
        model: model of the document of the lowest order that names one.
        fingerprint: `system_fingerprint` of the document that gave `model`.
        usage: token counts, the latest of each.
        finish_reason: finish reason of the lowest order.
        choices: highest choice index seen, plus one.
        stats: raw JSON by declared place, the latest; empty where it was dropped for its size.
        documents: number of documents, including content that was not decoded.
        events: server-sent events and lines read; those above `MAX_EVENTS` are not.
        ended: whether an end marker or an API's own terminator was seen.
        stopped: whether a native completion of llama.cpp says that it stopped: the last document of
            its stream, unless the request had several prompts.
        failed: whether an error was seen.
        damaged: whether a chunk was not JSON, or was not read.
        truncated: whether the last chunk was cut off.
        streamed: whether the response came as chunks or events of a stream.
        without_stats: whether the API never carries statistics.
        id_order: order of the document that gave `response_id`.
        model_order: order of the document that gave `model`.
        finish_order: order of the document that gave `finish_reason`.
        prompt_order: order of the document that gave the prompt tokens of `usage`.
        completion_order: order of the document that gave the completion tokens of `usage`.
        closing_order: order of the last usage chunk, which has no choices; -1 if none has come.
        stats_order: order of the document that gave `stats`, by declared place.

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
    stopped: bool = False
    failed: bool = False
    damaged: bool = False
    truncated: bool = False
    streamed: bool = False
    without_stats: bool = False
    fingerprint: str | None = None
    id_order: int = UNSEEN
    model_order: int = UNSEEN
    finish_order: int = UNSEEN
    prompt_order: int = -1
    completion_order: int = -1
    closing_order: int = -1
    stats_order: dict[str, int] | None = None

    @property
    def too_large(self) -> bool:
        """Whether statistics were dropped for their size."""
        return self.stats is not None and b"" in self.stats.values()

    @property
    def closed(self) -> bool:
        """Whether a usage chunk has followed the finish reason: nothing but an end marker can."""
        return self.finish_order < self.closing_order

    def may_have_id(self, response_id: str | None) -> bool:
        """Return whether an id may be one of this response's.

        It may if it is None, if seven other ids are known, or if an id may still arrive.
        """
        if response_id is None or len(self.other_ids) >= _MAX_OTHER_IDS:
            return True
        if self.response_id is None and not self.ended and not self.failed:
            return True  # The document with the id may not have arrived yet.
        response_id = response_id[:MAX_TEXT]
        return response_id == self.response_id or response_id in self.other_ids

    def parsed(self) -> ParsedResponse:
        """Return the response as adapters see it."""
        return ParsedResponse(
            stats=self.stats or {},
            usage=self.usage,
            choices=max(self.choices, 1),
            finish_reason=self.finish_reason,
            model=self.model,
            streamed=self.streamed,
        )

    def count_events(self, count: int = 1) -> bool:
        """Count events that are read; return False once they are more than any response has."""
        self.events += count
        if self.events <= MAX_EVENTS:
            return True
        self.damaged = True
        return False

    def add_id(self, response_id: str, order: int) -> None:
        """Add an id; the one of the lowest order is the response's."""
        response_id, known = response_id[:MAX_TEXT], self.response_id
        if order < self.id_order:
            self.response_id, self.id_order = response_id, order
        if known is None or (response_id == known and response_id == self.response_id):
            return
        ids = dict.fromkeys((*self.other_ids, known, response_id))
        ids.pop(self.response_id or "")
        self.other_ids = tuple(ids)[:_MAX_OTHER_IDS]

    def add_model(self, model: str, order: int, fingerprint: str | None = None) -> None:
        """Add a model, and the fingerprint beside it; those of the lowest order count."""
        if order < self.model_order:
            self.fingerprint = None if fingerprint is None else sys.intern(fingerprint[:MAX_TEXT])
            # Interned, since few models are served and each open request keeps its own.
            self.model, self.model_order = sys.intern(model[:MAX_TEXT]), order

    def add_finish_reason(self, reason: str | None, order: int) -> None:
        """Add a finish reason, which is not empty; the one of the lowest order counts."""
        if reason and order < self.finish_order:
            self.finish_reason, self.finish_order = reason[:MAX_TEXT], order

    def add_usage(self, prompt: int | None, completion: int | None, order: int) -> None:
        """Add token counts; of each, the latest counts."""
        known = self.usage
        if prompt is not None and order >= self.prompt_order:
            self.prompt_order = order
        else:
            prompt = None if known is None else known.prompt_tokens
        if completion is not None and order >= self.completion_order:
            self.completion_order = order
        else:
            completion = None if known is None else known.completion_tokens
        if prompt is not None or completion is not None:
            self.usage = Usage(prompt, completion)

    def add_stats(self, place: str, stats: bytes, order: int) -> None:
        """Add statistics found at a declared place; the latest count."""
        if self.stats is None or self.stats_order is None:
            self.stats, self.stats_order = {}, {}
        if order >= self.stats_order.get(place, -1):
            self.stats[place], self.stats_order[place] = stats, order
