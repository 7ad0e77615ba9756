"""The kinds of requests and of noise, and how common they are."""

from collections.abc import Callable
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from consumer.demo.fleet import mishaps, noise, sglang, vllm
from consumer.demo.fleet import tensorrt_llm as trtllm
from consumer.demo.fleet.carriers import (
    bare,
    in_one_event,
    in_segments,
    kserve,
    per_chunk,
    structured,
)
from consumer.demo.fleet.exchange import Reply, Request
from consumer.demo.fleet.messages import Expected, FleetMessage
from schemas import RequestOutcome


class TrafficKind(Struct, frozen=True):
    """A kind of request.

    Attributes:
        weight: how often it occurs in a deck.
        shape: writes the reply.
        carrier: wraps the reply in messages.
        spoil: what goes wrong with the reply.
        disturb: what goes wrong with the messages.

    """

    name: str
    weight: int
    engine: str
    shape: Callable[[Request], Reply]
    carrier: Callable[[Request, Reply], list[FleetMessage]]
    spoil: Callable[[Reply], Reply] | None = None
    disturb: Callable[[Random, list[FleetMessage]], list[FleetMessage]] | None = None

    def messages(self, rng: Random, at: int) -> list[FleetMessage]:
        """Return the messages of a request that arrives then."""
        request = Request.draw(rng, self.engine, at)
        if self.carrier is bare:  # Nothing says who it is but the body.
            request = replace(request, request_id=request.response_id)
        reply = self.shape(request)
        if self.spoil is not None:
            reply = self.spoil(reply)
        messages = self.carrier(request, reply)
        if self.disturb is not None:
            messages = self.disturb(rng, messages)
        # Once the last message that counts is out, the outcome is certain.
        counting = [message for message in messages if message.reason is None]
        last = max(counting, key=lambda message: message.timestamp)
        settling = last._replace(settles=self._expected(request, reply))
        return [settling if message is last else message for message in messages]

    def _expected(self, request: Request, reply: Reply) -> Expected:
        published = (RequestOutcome.PUBLISHED, None)
        outcome, reason = reply.unpublished if reply.record is None else published
        return Expected(
            request_id=request.request_id,
            response_id=request.response_id,
            kind=self.name,
            engine=request.model.engine,
            model=request.model.name,
            outcome=outcome,
            reason=reason,
            record=reply.record,
            prompt_tokens=request.generation.prompt_tokens if reply.usage else None,
            streamed=reply.streamed,
            stream_complete=reply.complete,
            after_timeout=reply.after_timeout,
        )


class Noise(Struct, frozen=True):
    """A kind of message that is no response."""

    name: str
    weight: int
    make: Callable[[Request], FleetMessage]

    def messages(self, rng: Random, at: int) -> list[FleetMessage]:
        """Return the message that is logged then."""
        return [self.make(Request.draw(rng, "vllm", at))]


_ALL: Final[tuple[TrafficKind | Noise, ...]] = (
    TrafficKind("vllm chat, kserve stream", 14, "vllm", vllm.chat_stream, kserve),
    TrafficKind("vllm chat, chunk events", 12, "vllm", vllm.chat_stream, per_chunk),
    TrafficKind("vllm chat, bare body", 8, "vllm", vllm.chat, bare),
    TrafficKind("vllm chat, structured body", 6, "vllm", vllm.chat, structured),
    TrafficKind("vllm chat, structured stream", 6, "vllm", vllm.chat_stream, structured),
    TrafficKind("vllm chat, response event", 3, "vllm", vllm.chat_stream, in_one_event),
    TrafficKind("vllm chat, raw segments", 3, "vllm", vllm.chat_stream, in_segments),
    TrafficKind("vllm completion, bare body", 4, "vllm", vllm.completion, bare),
    TrafficKind("sglang generate, chunk events", 8, "sglang", sglang.generate_stream, per_chunk),
    TrafficKind(
        "sglang generate, response event", 2, "sglang", sglang.generate_stream, in_one_event
    ),
    TrafficKind("sglang chat, kserve stream", 6, "sglang", sglang.chat_stream, kserve),
    TrafficKind("sglang chat, chunk events", 6, "sglang", sglang.chat_stream, per_chunk),
    TrafficKind("sglang chat, bare body", 3, "sglang", sglang.chat, bare),
    TrafficKind(
        "trtllm chat, bare stream", 5, "tensorrt_llm", trtllm.chat_stream, bare, mishaps.goes_on
    ),
    TrafficKind("trtllm chat, chunk events", 5, "tensorrt_llm", trtllm.chat_stream, per_chunk),
    TrafficKind("trtllm chat, structured body", 4, "tensorrt_llm", trtllm.chat, structured),
    # Finished without numbers.
    TrafficKind("vllm without usage, kserve", 5, "vllm", vllm.chat_stream_without_usage, kserve),
    TrafficKind("vllm without usage, chunks", 2, "vllm", vllm.chat_stream_without_usage, per_chunk),
    TrafficKind("vllm, speculation off", 3, "vllm", vllm.speculation_off, bare),
    TrafficKind("vllm, two choices", 1, "vllm", vllm.two_choices, bare),
    TrafficKind("sglang, not requested", 2, "sglang", sglang.not_requested, kserve),
    TrafficKind("responses api", 1, "vllm", vllm.responses_api, bare),
    TrafficKind("anthropic messages", 1, "vllm", vllm.anthropic_messages, in_one_event),
    # Numbers that nobody can use.
    TrafficKind("sglang, two choices", 2, "sglang", sglang.two_choices, per_chunk),
    TrafficKind("trtllm, two choices", 2, "tensorrt_llm", trtllm.two_choices, kserve),
    TrafficKind("vllm, contradiction", 1, "vllm", vllm.contradiction, structured),
    # Failed, or cut off.
    TrafficKind(
        "error chunk, chunk events",
        2,
        "vllm",
        vllm.chat_stream,
        per_chunk,
        mishaps.breaks,
        mishaps.says_done_in_vain,
    ),
    TrafficKind(
        "error chunk, kserve stream", 2, "sglang", sglang.chat_stream, kserve, mishaps.breaks
    ),
    TrafficKind("error body", 2, "vllm", vllm.error_body, in_one_event),
    TrafficKind("stream stops", 2, "vllm", vllm.chat_stream, per_chunk, mishaps.stops),
    TrafficKind(
        "stream cut, kserve", 2, "vllm", vllm.chat_stream, kserve, mishaps.cut_inside_a_chunk
    ),
    TrafficKind(
        "no end mark, structured", 1, "vllm", vllm.chat_stream, structured, mishaps.no_end_mark
    ),
    TrafficKind(
        "lost chunk",
        1,
        "tensorrt_llm",
        trtllm.chat_stream,
        per_chunk,
        mishaps.will_lose_a_chunk,
        mishaps.loses_a_chunk,
    ),
    # Delivered badly.
    TrafficKind(
        "chunk twice", 2, "vllm", vllm.chat_stream, per_chunk, disturb=mishaps.repeats_a_chunk
    ),
    TrafficKind(
        "late repeat", 1, "sglang", sglang.chat_stream, per_chunk, disturb=mishaps.repeats_late
    ),
    TrafficKind(
        "out of order", 2, "vllm", vllm.chat_stream, per_chunk, disturb=mishaps.swaps_neighbours
    ),
    TrafficKind(
        "response twice", 1, "vllm", vllm.chat, structured, disturb=mishaps.repeats_the_response
    ),
    # No response at all.
    Noise("broken json", 1, noise.broken_json),
    Noise("binary", 1, noise.binary),
    Noise("empty", 1, noise.empty),
    Noise("wrong member", 1, noise.wrong_member),
    Noise("wrong base64", 1, noise.wrong_base64),
    Noise("log line", 1, noise.log_line),
    Noise("tombstone", 1, noise.tombstone),
    Noise("feedback event", 1, noise.feedback),
)

KINDS: Final = tuple(kind.name for kind in _ALL)
DECK: Final = sum(kind.weight for kind in _ALL)
"""Every kind occurs within this many requests."""


def new_deck() -> list[TrafficKind | Noise]:
    """Return every kind as often as it weighs."""
    return [kind for kind in _ALL for _ in range(kind.weight)]
