"""The kinds of requests, and how often each one occurs."""

from collections.abc import Callable
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from consumer.demo.fleet import sglang, vllm
from consumer.demo.fleet import tensorrt_llm as trtllm
from consumer.demo.fleet.carriers import (
    bare,
    in_one_event,
    in_segments,
    kserve,
    per_chunk,
    structured,
)
from consumer.demo.fleet.messages import ExpectedOutcome
from consumer.demo.fleet.mishaps import (
    Messages,
    add_event_after_end,
    drop_end_marker,
    expect_gap,
    expect_late_end,
    fail_midway,
    lose_chunk,
    repeat_chunk,
    repeat_chunk_late,
    repeat_response,
    stop_midway,
    swap_neighbours,
    truncate,
)
from consumer.demo.fleet.requests import Reply, Request
from schemas import RequestOutcome


class RequestKind(Struct, frozen=True):
    """A kind of request.

    Attributes:
        weight: how often it occurs among `REQUESTS_PER_ROUND` requests.
        answer: makes the reply.
        wrap: wraps the reply in messages.
        mishap: what goes wrong with the reply.
        delivery: what goes wrong with the messages on their way.

    """

    name: str
    weight: int
    engine: str
    answer: Callable[[Request], Reply]
    wrap: Callable[[Request, Reply], Messages]
    mishap: Callable[[Reply], Reply] = lambda reply: reply
    delivery: Callable[[Random, Messages], Messages] = lambda _rng, messages: messages

    def messages(self, rng: Random, at: int) -> Messages:
        """Return the messages of a request that arrives at that time."""
        request = Request.draw(rng, self.engine, at)
        if self.wrap is bare:  # Without an envelope, only the body holds an id.
            request = replace(request, request_id=request.response_id)
        reply = self.mishap(self.answer(request))
        messages = self.delivery(rng, self.wrap(request, reply))
        accepted = (message for message in messages if message.reason is None)
        last = max(accepted, key=lambda message: message.timestamp)
        completing = last._replace(expected=self._expected(request, reply))
        return [completing if message is last else message for message in messages]

    def _expected(self, request: Request, reply: Reply) -> ExpectedOutcome:
        published = (RequestOutcome.PUBLISHED, None)
        outcome, reason = reply.unpublished if reply.record is None else published
        return ExpectedOutcome(
            request_id=request.request_id,
            response_id=request.response_id,
            kind=self.name,
            engine=request.model.engine,
            model=request.model.name,
            outcome=outcome,
            reason=reason,
            record=reply.record,
            prompt_tokens=request.generation.prompt_tokens if reply.has_usage else None,
            streamed=reply.streamed,
            stream_complete=reply.is_complete,
            after_timeout=reply.after_timeout,
        )


REQUEST_KINDS: Final[tuple[RequestKind, ...]] = (
    RequestKind("vllm chat, kserve stream", 14, "vllm", vllm.chat_stream, kserve),
    RequestKind("vllm chat, chunk events", 12, "vllm", vllm.chat_stream, per_chunk),
    RequestKind("vllm chat, bare body", 8, "vllm", vllm.chat, bare),
    RequestKind("vllm chat, structured body", 6, "vllm", vllm.chat, structured),
    RequestKind("vllm chat, structured stream", 6, "vllm", vllm.chat_stream, structured),
    RequestKind("vllm chat, response event", 3, "vllm", vllm.chat_stream, in_one_event),
    RequestKind("vllm chat, raw segments", 3, "vllm", vllm.chat_stream, in_segments),
    RequestKind("vllm completion, bare body", 4, "vllm", vllm.completion, bare),
    RequestKind("sglang generate, chunk events", 8, "sglang", sglang.generate_stream, per_chunk),
    RequestKind(
        "sglang generate, response event", 2, "sglang", sglang.generate_stream, in_one_event
    ),
    RequestKind("sglang chat, kserve stream", 6, "sglang", sglang.chat_stream, kserve),
    RequestKind("sglang chat, chunk events", 6, "sglang", sglang.chat_stream, per_chunk),
    RequestKind("sglang chat, bare body", 3, "sglang", sglang.chat, bare),
    RequestKind(
        "trtllm chat, bare stream", 5, "tensorrt_llm", trtllm.chat_stream, bare, add_event_after_end
    ),
    RequestKind("trtllm chat, chunk events", 5, "tensorrt_llm", trtllm.chat_stream, per_chunk),
    RequestKind("trtllm chat, structured body", 4, "tensorrt_llm", trtllm.chat, structured),
    # Finished without statistics.
    RequestKind("vllm without usage, kserve", 5, "vllm", vllm.chat_stream_without_usage, kserve),
    RequestKind("vllm without usage, chunks", 2, "vllm", vllm.chat_stream_without_usage, per_chunk),
    RequestKind("vllm, speculation off", 3, "vllm", vllm.speculation_off, bare),
    RequestKind("vllm, two choices", 1, "vllm", vllm.two_choices, bare),
    RequestKind("sglang, not requested", 2, "sglang", sglang.not_requested, kserve),
    RequestKind("responses api", 1, "vllm", vllm.responses_api, bare),
    RequestKind("anthropic messages", 1, "vllm", vllm.anthropic_messages, in_one_event),
    # Statistics of several choices, or contradictory ones.
    RequestKind("sglang, two choices", 2, "sglang", sglang.two_choices, per_chunk),
    RequestKind("trtllm, two choices", 2, "tensorrt_llm", trtllm.two_choices, kserve),
    RequestKind("vllm, contradiction", 1, "vllm", vllm.contradiction, structured),
    # Failed, or cut off.
    RequestKind(
        "error chunk, chunk events",
        2,
        "vllm",
        vllm.chat_stream,
        per_chunk,
        fail_midway,
        expect_late_end,
    ),
    RequestKind("error chunk, kserve stream", 2, "sglang", sglang.chat_stream, kserve, fail_midway),
    RequestKind("error body", 2, "vllm", vllm.error_body, in_one_event),
    RequestKind("stream stops", 2, "vllm", vllm.chat_stream, per_chunk, stop_midway),
    RequestKind("stream cut, kserve", 2, "vllm", vllm.chat_stream, kserve, truncate),
    RequestKind(
        "no end marker, structured", 1, "vllm", vllm.chat_stream, structured, drop_end_marker
    ),
    RequestKind(
        "lost chunk", 1, "tensorrt_llm", trtllm.chat_stream, per_chunk, expect_gap, lose_chunk
    ),
    # Repeated or out of order.
    RequestKind("chunk twice", 2, "vllm", vllm.chat_stream, per_chunk, delivery=repeat_chunk),
    RequestKind(
        "late repeat", 1, "sglang", sglang.chat_stream, per_chunk, delivery=repeat_chunk_late
    ),
    RequestKind("out of order", 2, "vllm", vllm.chat_stream, per_chunk, delivery=swap_neighbours),
    RequestKind("response twice", 1, "vllm", vllm.chat, structured, delivery=repeat_response),
)
