"""The kinds of requests, and how often each one occurs."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from consumer.demo.fleet import llamacpp, sglang, vllm
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

    engine: str
    name: str
    weight: int
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


_vllm: Final = partial(RequestKind, "vllm")
_sglang: Final = partial(RequestKind, "sglang")
_trtllm: Final = partial(RequestKind, "tensorrt_llm")
_llamacpp: Final = partial(RequestKind, "llamacpp")

REQUEST_KINDS: Final[tuple[RequestKind, ...]] = (
    _vllm("vllm chat, kserve stream", 14, vllm.chat_stream, kserve),
    _vllm("vllm chat, chunk events", 12, vllm.chat_stream, per_chunk),
    _vllm("vllm chat, bare body", 8, vllm.chat, bare),
    _vllm("vllm chat, structured body", 6, vllm.chat, structured),
    _vllm("vllm chat, structured stream", 6, vllm.chat_stream, structured),
    _vllm("vllm chat, response event", 3, vllm.chat_stream, in_one_event),
    _vllm("vllm chat, raw segments", 3, vllm.chat_stream, in_segments),
    _vllm("vllm completion, bare body", 4, vllm.completion, bare),
    _sglang("sglang generate, chunk events", 8, sglang.generate_stream, per_chunk),
    _sglang("sglang generate, response event", 2, sglang.generate_stream, in_one_event),
    _sglang("sglang chat, kserve stream", 6, sglang.chat_stream, kserve),
    _sglang("sglang chat, chunk events", 6, sglang.chat_stream, per_chunk),
    _sglang("sglang chat, bare body", 3, sglang.chat, bare),
    _trtllm("trtllm chat, bare stream", 5, trtllm.chat_stream, bare, add_event_after_end),
    _trtllm("trtllm chat, chunk events", 5, trtllm.chat_stream, per_chunk),
    _trtllm("trtllm chat, structured body", 4, trtllm.chat, structured),
    _llamacpp("llamacpp chat, chunk events", 3, llamacpp.chat_stream, per_chunk),
    _llamacpp("llamacpp chat, bare body", 2, llamacpp.chat, bare),
    # Finished without statistics.
    _vllm("vllm without usage, kserve", 5, vllm.chat_stream_without_usage, kserve),
    _vllm("vllm without usage, chunks", 2, vllm.chat_stream_without_usage, per_chunk),
    _vllm("vllm, speculation off", 3, vllm.speculation_off, bare),
    _vllm("vllm, two choices", 1, vllm.two_choices, bare),
    _sglang("sglang, not requested", 2, sglang.not_requested, kserve),
    _vllm("responses api", 1, vllm.responses_api, bare),
    _vllm("anthropic messages", 1, vllm.anthropic_messages, in_one_event),
    # Statistics of several choices, or contradictory ones.
    _sglang("sglang, two choices", 2, sglang.two_choices, per_chunk),
    _trtllm("trtllm, two choices", 2, trtllm.two_choices, kserve),
    _vllm("vllm, contradiction", 1, vllm.contradiction, structured),
    # Failed, or cut off.
    _vllm(
        "error chunk, chunk events", 2, vllm.chat_stream, per_chunk, fail_midway, expect_late_end
    ),
    _sglang("error chunk, kserve stream", 2, sglang.chat_stream, kserve, fail_midway),
    _vllm("error body", 2, vllm.error_body, in_one_event),
    _vllm("stream stops", 2, vllm.chat_stream, per_chunk, stop_midway),
    _vllm("stream cut, kserve", 2, vllm.chat_stream, kserve, truncate),
    _vllm("no end marker, structured", 1, vllm.chat_stream, structured, drop_end_marker),
    _trtllm("lost chunk", 1, trtllm.chat_stream, per_chunk, expect_gap, lose_chunk),
    # Repeated or out of order.
    _vllm("chunk twice", 2, vllm.chat_stream, per_chunk, delivery=repeat_chunk),
    _sglang("late repeat", 1, sglang.chat_stream, per_chunk, delivery=repeat_chunk_late),
    _vllm("out of order", 2, vllm.chat_stream, per_chunk, delivery=swap_neighbours),
    _vllm("response twice", 1, vllm.chat, structured, delivery=repeat_response),
)
