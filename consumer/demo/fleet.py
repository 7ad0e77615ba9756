"""A made-up serving fleet: what engines and gateways would log to Kafka, and what must come of it.

Deterministic: the same seed, rate and start give the same messages, byte for byte. Nothing here
sleeps or knows Kafka; every message says when it is due, and the caller keeps to that or does not.

From top to bottom: messages and their truth, models and the numbers of one generation, what each
engine writes, how that travels, what goes wrong, the table of kinds, and the fleet.
"""

import base64
import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise, zip_longest
from random import Random
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from schemas import (
    AcceptanceRecord,
    BadPayloadReason,
    IncompleteReason,
    MalformedReason,
    NoStatsReason,
    RequestOutcome,
    SkipReason,
)

INPUT_TOPIC: Final = "serving-responses"
CANARY: Final = "canary-content-4f1d"
"""In every prompt and every answer; nothing that the service says may contain it."""

CREDENTIAL_CANARY: Final = "canary-credential-9b27"
"""In a credential header of every message; nothing that the service writes may contain it."""

Json = dict[str, Any]
Header = tuple[str, bytes]

_encode: Final = msgspec.json.encode
_DONE: Final = "[DONE]"


# --- Messages and their truth


class Label(StrEnum):
    """What a message is."""

    CHUNK = "chunk event"
    SEGMENT = "raw segment"
    RESPONSE = "response event"
    KSERVE_RESPONSE = "kserve response"
    KSERVE_REQUEST = "kserve request"
    STRUCTURED = "structured cloudevent"
    BARE = "bare body"
    REPEAT = "repeat"
    UNRELATED = "unrelated"
    BAD = "bad payload"


OutcomeReason = NoStatsReason | MalformedReason | IncompleteReason


class Expected(Struct, frozen=True, kw_only=True):
    """What must become of one request.

    Attributes:
        request_id: as the envelope says, or the body where nothing is around it.
        kind: name of the kind of request.
        reason: why, where the outcome has reasons. Of a stream that stops, the reason in a log
            that goes on; where the log ends there, the service may say `partition_silent`.
        record: the numbers, if the outcome is `published`.
        after_timeout: the record comes only when the service has waited for what never came.

    """

    request_id: str
    response_id: str
    kind: str
    engine: str
    model: str
    outcome: RequestOutcome
    reason: OutcomeReason | None
    record: AcceptanceRecord | None
    prompt_tokens: int | None
    streamed: bool
    stream_complete: bool
    after_timeout: bool


class FleetMessage(NamedTuple):
    """One Kafka message, and what it settles.

    Attributes:
        timestamp: when it is due, milliseconds since 1970; also its Kafka timestamp.
        reason: why the message itself is skipped or a bad payload; None if it is accepted.
        settles: the request of which this is the last message that counts.

    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    label: Label
    timestamp: int
    reason: BadPayloadReason | SkipReason | None = None
    settles: Expected | None = None


# --- Models, and the numbers of one generation


class Model(Struct, frozen=True):
    """A model on an engine.

    Attributes:
        width: most draft tokens per verify step (k).
        likely: chance that the first draft of a step is accepted.
        fades: factor on that chance for each further draft.
        adaptive: the drafter proposes fewer than `width` at times.
        detailed: vLLM reports every step.

    """

    engine: str
    name: str
    width: int
    likely: float
    fades: float
    adaptive: bool = False
    detailed: bool = False


MODELS: Final = (
    Model("vllm", "Qwen/Qwen3-32B", 3, 0.78, 0.90, detailed=True),
    Model("vllm", "meta-llama/Llama-3.3-70B-Instruct", 5, 0.84, 0.95),
    Model("vllm", "mistralai/Mistral-Small-24B", 4, 0.55, 0.80, adaptive=True, detailed=True),
    Model("sglang", "deepseek-ai/DeepSeek-V3.2", 3, 0.85, 0.88),
    Model("sglang", "Qwen/Qwen3-8B", 5, 0.76, 0.90),
    Model("tensorrt_llm", "meta-llama/Llama-3.1-8B-Instruct", 3, 0.74, 0.90),
    Model("tensorrt_llm", "openai/gpt-oss-120b", 4, 0.66, 0.92),
)


class Generation(Struct, frozen=True):
    """One generation: drafts proposed and accepted per verify step, and the tokens that remain.

    The prefill gives a token, every step its accepted drafts and a bonus token; the token limit
    cuts what the last step gave, and only `completion_tokens` feels it.
    """

    accepted: list[int]
    drafted: list[int]
    completion_tokens: int
    prompt_tokens: int
    finish_reason: str

    @classmethod
    def draw(cls, rng: Random, model: Model) -> Self:
        """Draw a generation of the model."""
        limit = rng.choice((32, 48, 64))
        tokens, accepted, drafted = 1, list[int](), list[int]()
        while tokens < limit and rng.random() > 0.03:  # noqa: PLR2004 - chance of a stop token.
            proposed = rng.randint(1, model.width) if model.adaptive else model.width
            taken = _accepted_of(rng, model, proposed)
            drafted.append(proposed)
            accepted.append(taken)
            tokens += taken + 1
        finish = "stop" if tokens < limit else "length"
        return cls(accepted, drafted, min(tokens, limit), rng.randint(8, 400), finish)

    @property
    def steps(self) -> int:
        """Number of verify steps."""
        return len(self.accepted)

    @property
    def mean(self) -> float:
        """Mean tokens per step, bonus included."""
        return 1 + sum(self.accepted) / self.steps if self.steps else 1.0

    @property
    def rate(self) -> float:
        """Accepted drafts of the proposed ones."""
        return sum(self.accepted) / sum(self.drafted) if self.drafted else 0.0

    @property
    def histogram(self) -> dict[int, int]:
        """Steps by accepted drafts, empty buckets left out."""
        return dict(sorted(Counter(self.accepted).items()))

    def dense(self, buckets: int) -> list[int]:
        """Return the histogram as a list of that many buckets."""
        return [self.histogram.get(accepted, 0) for accepted in range(buckets)]

    def pieces(self) -> list[int]:
        """Return the tokens of each chunk: the first token, then one chunk per step."""
        pieces = [1, *(taken + 1 for taken in self.accepted)]
        pieces[-1] -= sum(pieces) - self.completion_tokens
        return pieces


def _usage(*generations: Generation) -> Json:
    """Return OpenAI's usage object: one prompt, and the tokens of all its generations."""
    prompt = generations[0].prompt_tokens
    completion = sum(generation.completion_tokens for generation in generations)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }


def _accepted_of(rng: Random, model: Model, proposed: int) -> int:
    """Verify drafts until the first that is refused."""
    chance = model.likely
    for accepted in range(proposed):
        if rng.random() >= chance:
            return accepted
        chance *= model.fades
    return proposed


class _Draft(Struct, frozen=True, kw_only=True):
    """A request on its way to becoming messages."""

    rng: Random
    topic: str
    kind: str
    at: int
    model: Model
    request_id: str
    response_id: str
    generation: Generation

    @property
    def instance(self) -> str:
        return f"{self.model.engine}-{self.model.name.rpartition('/')[2].lower()}-0"

    def texts(self) -> list[str]:
        return [self.text(tokens) for tokens in self.generation.pieces()]

    def whole_text(self) -> str:
        return self.text(self.generation.completion_tokens)

    def text(self, tokens: int) -> str:
        words = ("Grüne", "Äpfel", "🍏", "fall", "not", "far", "from", "the", "tree")
        return " ".join([CANARY, *self.rng.choices(words, k=tokens)]) + " "

    def two_generations(self) -> list[Generation]:
        return [self.generation, Generation.draw(self.rng, self.model)]

    def head(self, kind: str) -> Json:
        return {
            "id": self.response_id,
            "object": kind,
            "created": self.at // 1000,
            "model": self.model.name,
        }


# --- What each engine writes


class _Reply(Struct, frozen=True, kw_only=True):
    """What the server sent, before it travels: chunks of a stream, or one body.

    A chunk that is a string is the end mark or raw text of the stream.
    """

    chunks: list[Json | str]
    streamed: bool
    record: AcceptanceRecord | None
    outcome: RequestOutcome
    reason: OutcomeReason | None = None
    usage: bool = True
    complete: bool = True
    after_timeout: bool = False
    endpoint: str = "/v1/chat/completions"
    status: int = 200


def _stream(chunks: Sequence[Json], record: AcceptanceRecord | None) -> _Reply:
    return _reply([*chunks, _DONE], record, streamed=True)


def _body(body: Json, record: AcceptanceRecord | None) -> _Reply:
    return _reply([body], record, streamed=False)


def _reply(chunks: list[Json | str], record: AcceptanceRecord | None, *, streamed: bool) -> _Reply:
    outcome, reason = RequestOutcome.PUBLISHED, None
    if record is None:
        outcome, reason = RequestOutcome.NO_STATS, NoStatsReason.ABSENT
    return _Reply(chunks=chunks, streamed=streamed, record=record, outcome=outcome, reason=reason)


def _refused(reply: _Reply, outcome: RequestOutcome, reason: OutcomeReason | None = None) -> _Reply:
    return replace(reply, outcome=outcome, reason=reason, record=None)


def _vllm_stats(draft: _Draft) -> Json:
    generation = draft.generation
    stats: Json = {
        "mean_acceptance_length": generation.mean,
        "draft_acceptance_rate": generation.rate,
        "acceptance_histogram": generation.dense(draft.model.width + 1),
        "num_spec_steps": generation.steps,
        "num_accepted_draft_tokens": sum(generation.accepted),
        "num_draft_tokens": sum(generation.drafted),
        "num_spec_tokens": draft.model.width,
    }
    if draft.model.detailed and generation.steps:
        stats["per_step_accepted"] = generation.accepted
        stats["per_step_drafted"] = generation.drafted
    return stats


def _record(draft: _Draft) -> AcceptanceRecord:
    """Return the numbers of the generation, as an engine that reports all of them would."""
    generation = draft.generation
    detailed = draft.model.detailed and generation.steps > 0
    return AcceptanceRecord(
        engine=draft.model.engine,
        mean_acceptance_length=generation.mean,
        draft_acceptance_rate=generation.rate,
        acceptance_histogram=generation.histogram,
        num_accepted_draft_tokens=sum(generation.accepted),
        num_draft_tokens=sum(generation.drafted),
        num_spec_steps=generation.steps,
        num_spec_tokens=draft.model.width,
        completion_tokens=generation.completion_tokens,
        per_step_accepted=generation.accepted if detailed else None,
        per_step_drafted=generation.drafted if detailed else None,
    )


def _vllm_chat_stream(draft: _Draft) -> _Reply:
    head = draft.head("chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return head | {"choices": [choice]}

    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"content": text}) for text in draft.texts()]
    chunks.append(chunk({"content": ""}, draft.generation.finish_reason))
    last = {
        "choices": [],
        "usage": _usage(draft.generation),
        "system_fingerprint": "vllm-0.33.0-demo",
        "metrics": {"speculative_decoding": _vllm_stats(draft)},
    }
    return _stream([*chunks, head | last], _record(draft))


def _vllm_stream_without_usage(draft: _Draft) -> _Reply:
    reply = _vllm_chat_stream(draft)
    chunks = [*reply.chunks[:-2], _DONE]
    reason = NoStatsReason.STREAM_WITHOUT_USAGE_CHUNK
    return replace(_refused(reply, RequestOutcome.NO_STATS, reason), chunks=chunks, usage=False)


def _vllm_body(
    draft: _Draft, kind: str, choices: list[Json], usage: Json, metrics: Json | None
) -> Json:
    return draft.head(kind) | {
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": "vllm-0.33.0-demo",
        "usage": usage | {"prompt_tokens_details": None},
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "kv_transfer_params": None,
        "metrics": metrics,
    }


def _vllm_metrics(draft: _Draft) -> Json:
    """Return `metrics` of a body: unlike a stream's, with everything unknown there as null."""
    timing = (
        "time_to_first_token_ms",
        "generation_time_ms",
        "queue_time_ms",
        "mean_itl_ms",
        "tokens_per_second",
    )
    stats = _vllm_stats(draft)
    for member in ("per_step_accepted", "per_step_drafted"):
        stats.setdefault(member, None)
    return dict.fromkeys(timing) | {"speculative_decoding": stats}


def _vllm_chat_body(draft: _Draft, generations: list[Generation], metrics: Json | None) -> Json:
    choices: list[Json] = []
    for index, generation in enumerate(generations):
        text = draft.text(generation.completion_tokens)
        choice: Json = {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None, "tool_calls": []},
            "logprobs": None,
            "finish_reason": generation.finish_reason,
            "stop_reason": None,
        }
        choices.append(choice)
    return _vllm_body(draft, "chat.completion", choices, _usage(*generations), metrics)


def _vllm_chat(draft: _Draft) -> _Reply:
    body = _vllm_chat_body(draft, [draft.generation], _vllm_metrics(draft))
    return _body(body, _record(draft))


def _vllm_completion(draft: _Draft) -> _Reply:
    generation = draft.generation
    choice = {
        "index": 0,
        "text": draft.text(generation.completion_tokens),
        "logprobs": None,
        "finish_reason": generation.finish_reason,
        "stop_reason": None,
    }
    metrics = _vllm_metrics(draft)
    body = _vllm_body(draft, "text_completion", [choice], _usage(generation), metrics)
    return replace(_body(body, _record(draft)), endpoint="/v1/completions")


def _vllm_speculation_off(draft: _Draft) -> _Reply:
    return _body(_vllm_chat_body(draft, [draft.generation], None), None)


def _vllm_two_choices(draft: _Draft) -> _Reply:
    return _body(_vllm_chat_body(draft, draft.two_generations(), None), None)


def _vllm_contradiction(draft: _Draft) -> _Reply:
    """Report one step more in the histogram than there were."""
    metrics = _vllm_metrics(draft)
    metrics["speculative_decoding"]["acceptance_histogram"][0] += 1
    reply = _body(_vllm_chat_body(draft, [draft.generation], metrics), None)
    return _refused(reply, RequestOutcome.MALFORMED_STATS, MalformedReason.HISTOGRAM_STEPS)


def _responses_api(draft: _Draft) -> _Reply:
    part = {"type": "output_text", "annotations": [], "text": draft.whole_text()}
    item = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
    body = {
        "id": draft.response_id,
        "object": "response",
        "created_at": draft.at // 1000,
        "model": draft.model.name,
        "status": "completed",
        "output": [item],
        "usage": _input_output_usage(draft),
    }
    return _without_stats_by_design(body, "/v1/responses")


def _anthropic_messages(draft: _Draft) -> _Reply:
    body = {
        "id": draft.response_id,
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": draft.whole_text()}],
        "model": draft.model.name,
        "stop_reason": "end_turn",
        "usage": _input_output_usage(draft),
    }
    return _without_stats_by_design(body, "/v1/messages")


def _input_output_usage(draft: _Draft) -> Json:
    generation = draft.generation
    return {
        "input_tokens": generation.prompt_tokens,
        "output_tokens": generation.completion_tokens,
    }


def _without_stats_by_design(body: Json, endpoint: str) -> _Reply:
    reason = NoStatsReason.ENDPOINT_WITHOUT_STATS
    reply = _refused(_body(body, None), RequestOutcome.NO_STATS, reason)
    return replace(reply, endpoint=endpoint)


def _sglang_stats(generation: Generation, width: int) -> Json:
    """Return SGLang's numbers: the proposed drafts nominal, the histogram not padded."""
    proposed = generation.steps * width
    return {
        "spec_accept_rate": sum(generation.accepted) / proposed,
        "spec_accept_length": generation.completion_tokens / generation.steps,
        "spec_num_correct_drafts": sum(generation.accepted),
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": generation.steps,
        "spec_correct_drafts_histogram": generation.dense(max(generation.accepted) + 1),
    }


def _sglext(generation: Generation, width: int) -> Json:
    """Return the fixed nine keys of `spec_tokens_details`."""
    unset = {"spec_cap_length": 0.0, "spec_block_accept_length": 0.0, "spec_cap_lens_histogram": []}
    return _sglang_stats(generation, width) | unset


def _sglang_record(draft: _Draft) -> AcceptanceRecord | None:
    if not draft.generation.steps:
        return None  # SGLang leaves its keys out then.
    return replace(_record(draft), num_spec_tokens=None, draft_tokens_measured=False)


def _sglang_chunk(head: Json, delta: Json, finish: str | None = None, index: int = 0) -> Json:
    choice = {
        "index": index,
        "delta": {"role": None, "content": None, "reasoning_content": None} | delta,
        "logprobs": None,
        "finish_reason": finish,
        "matched_stop": None,
    }
    return head | {"choices": [choice], "usage": None}


def _sglang_chat_stream(draft: _Draft) -> _Reply:
    generation, head = draft.generation, draft.head("chat.completion.chunk")
    chunks = [_sglang_chunk(head, {"role": "assistant", "content": ""})]
    chunks += [_sglang_chunk(head, {"content": text}) for text in draft.texts()]
    chunks.append(_sglang_chunk(head, {}, generation.finish_reason))
    record = _sglang_record(draft)
    if record is not None:
        details = {"spec_tokens_details": _sglext(generation, draft.model.width)}
        chunks.append(head | {"choices": [], "usage": None, "sglext": details})
    # The numbers come with or without include_usage; the token counts only with it.
    usage = record is None or draft.rng.random() < 0.7  # noqa: PLR2004 - share that asks for usage.
    if usage:
        chunks.append(head | {"choices": [], "usage": _usage(generation)})
    elif record is not None:
        record = replace(record, completion_tokens=None)
    return replace(_stream(chunks, record), usage=usage)


def _sglang_two_choices(draft: _Draft) -> _Reply:
    """Stream two choices under ids of their own: a list of numbers, which nobody can tell apart."""
    both = draft.two_generations()
    heads = [draft.head("chat.completion.chunk") | {"id": f"{draft.response_id}-{n}"} for n in "01"]
    chunks: list[Json] = []
    for together in zip_longest(*(generation.pieces() for generation in both)):
        for index, tokens in enumerate(together):
            if tokens is not None:
                text = draft.text(tokens)
                chunks.append(_sglang_chunk(heads[index], {"content": text}, None, index))
    for index, head in enumerate(heads):
        chunks.append(_sglang_chunk(head, {}, both[index].finish_reason, index))
    details = [_sglext(one, draft.model.width) for one in both if one.steps]
    if details:
        sglext = {"spec_tokens_details": details}
        chunks.append(heads[0] | {"choices": [], "usage": None, "sglext": sglext})
    chunks.append(heads[0] | {"choices": [], "usage": _usage(*both)})
    reply = _stream(chunks, None)
    return _refused(reply, RequestOutcome.UNATTRIBUTABLE) if details else reply


def _sglang_generate_stream(draft: _Draft) -> _Reply:
    """Stream `/generate`: the text cumulative, the numbers in the finish chunk's meta_info."""
    generation, chunks = draft.generation, list[Json]()
    text, tokens = "", 0
    meta: Json = {"id": draft.response_id, "prompt_tokens": generation.prompt_tokens}
    for piece in generation.pieces():
        text, tokens = text + draft.text(piece), tokens + piece
        now = {"finish_reason": None, "completion_tokens": tokens, "cached_tokens": 0}
        chunks.append({"text": text, "output_ids": [11] * piece, "meta_info": meta | now})
    finish: Json = {"type": generation.finish_reason}
    if generation.finish_reason == "length":
        finish["length"] = generation.completion_tokens
    chunks[-1]["meta_info"] |= {"finish_reason": finish, "e2e_latency": 0.81}
    if generation.steps:
        chunks[-1]["meta_info"] |= _sglang_stats(generation, draft.model.width)
    return replace(_stream(chunks, _sglang_record(draft)), endpoint="/generate")


def _sglang_chat(draft: _Draft) -> _Reply:
    record = _sglang_record(draft)
    body = _sglang_body(draft)
    if record is not None:
        details = _sglext(draft.generation, draft.model.width)
        body["sglext"] = {"spec_tokens_details": details}
    return _body(body, record)


def _sglang_not_requested(draft: _Draft) -> _Reply:
    return _body(_sglang_body(draft), None)


def _sglang_body(draft: _Draft) -> Json:
    choice = {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": draft.whole_text(),
            "reasoning_content": None,
        },
        "logprobs": None,
        "finish_reason": draft.generation.finish_reason,
        "matched_stop": None,
    }
    return draft.head("chat.completion") | {
        "choices": [choice],
        "usage": _usage(draft.generation),
        "metadata": {"weight_version": "default"},
    }


def _trtllm_stats(draft: _Draft, generation: Generation) -> Json:
    """Return the member of a finished choice; absent when nothing was drafted."""
    if not generation.steps:
        return {}
    stats = {
        "acceptance_rate": generation.rate,
        "total_accepted_draft_tokens": sum(generation.accepted),
        "total_draft_tokens": sum(generation.drafted),
        "num_spec_steps": generation.steps,
        "acceptance_histogram": generation.dense(draft.model.width + 1),
        "num_spec_tokens": draft.model.width,
    }
    return {"speculative_decoding": stats}


def _trtllm_record(draft: _Draft) -> AcceptanceRecord | None:
    return _record(draft) if draft.generation.steps else None


def _trtllm_stream(draft: _Draft) -> _Reply:
    generation, head = draft.generation, draft.head("chat.completion.chunk")
    choices: list[Json] = [{"index": 0, "delta": {"role": "assistant"}}]
    for text in draft.texts():
        delta = {"content": text, "reasoning_content": ""}
        choices.append({"index": 0, "delta": delta, "avg_decoded_tokens_per_iter": 2.0})
    choices[-1] |= {"finish_reason": generation.finish_reason} | _trtllm_stats(draft, generation)
    usage = _usage(generation) | {"prompt_tokens_details": {"cached_tokens": 0}}
    chunks = [head | {"choices": [choice]} for choice in choices]
    return _stream([*chunks, head | {"choices": [], "usage": usage}], _trtllm_record(draft))


def _trtllm_chat(draft: _Draft) -> _Reply:
    return _body(_trtllm_body(draft, [draft.generation]), _trtllm_record(draft))


def _trtllm_two_choices(draft: _Draft) -> _Reply:
    both = draft.two_generations()
    reply = _body(_trtllm_body(draft, both), None)
    reported = any(one.steps for one in both)
    return _refused(reply, RequestOutcome.UNATTRIBUTABLE) if reported else reply


def _trtllm_body(draft: _Draft, generations: list[Generation]) -> Json:
    choices: list[Json] = []
    for index, generation in enumerate(generations):
        text = draft.text(generation.completion_tokens)
        choice = {
            "index": index,
            "message": {"role": "assistant", "content": text, "reasoning_content": None},
            "logprobs": None,
            "finish_reason": generation.finish_reason,
            "stop_reason": None,
            "disaggregated_params": None,
            "avg_decoded_tokens_per_iter": generation.mean,
        }
        choices.append(choice | _trtllm_stats(draft, generation))
    usage = _usage(*generations) | {"prompt_tokens_details": {"cached_tokens": 0}}
    return draft.head("chat.completion") | {"choices": choices, "usage": usage}


def _error_body(_draft: _Draft) -> _Reply:
    error = {"message": "engine is overloaded", "type": "ServiceUnavailable", "code": 503}
    reply = _refused(_body({"error": error}, None), RequestOutcome.FAILED_RESPONSE)
    return replace(reply, usage=False, status=503)


# --- How it travels


def _per_chunk(draft: _Draft, reply: _Reply) -> list[FleetMessage]:
    """Log one native event per chunk."""
    messages, at = [], draft.at
    for sequence, chunk in enumerate(reply.chunks):
        event = _native_event(draft, reply, at) | {"sequence": sequence, "body": chunk}
        if chunk == _DONE:
            event["final"] = True
        messages.append(_native_message(draft, event, Label.CHUNK, at))
        at += draft.rng.randint(10, 40)
    return messages


def _in_segments(draft: _Draft, reply: _Reply) -> list[FleetMessage]:
    """Log the bytes as a network tap sees them: cut anywhere, in the middle of a character too."""
    raw, messages, at = _bytes_of(reply), [], draft.at
    cuts = set(draft.rng.sample(range(1, len(raw)), k=4))
    inside = [place for place, byte in enumerate(raw) if 0x80 <= byte < 0xC0]  # noqa: PLR2004 - UTF-8.
    cuts.update(draft.rng.sample(inside, k=min(1, len(inside))))
    for sequence, (start, end) in enumerate(pairwise([0, *sorted(cuts), len(raw)])):
        segment = base64.b64encode(raw[start:end]).decode()
        event = _native_event(draft, reply, at) | {"sequence": sequence, "body_base64": segment}
        if end == len(raw):
            event["final"] = True
        messages.append(_native_message(draft, event, Label.SEGMENT, at))
        at += draft.rng.randint(40, 150)
    return messages


def _in_one_event(draft: _Draft, reply: _Reply) -> list[FleetMessage]:
    """Log one native event per response."""
    body = _bytes_of(reply).decode() if reply.streamed else reply.chunks[0]
    event = _native_event(draft, reply, draft.at) | {"body": body, "status": reply.status}
    return [_native_message(draft, event, Label.RESPONSE, draft.at)]


def _native_event(draft: _Draft, reply: _Reply, at: int) -> Json:
    return {
        "request_id": draft.request_id,
        "timestamp": at,
        "engine": draft.model.engine,
        "model": draft.model.name,
        "instance": draft.instance,
        "endpoint": reply.endpoint,
        "labels": {"tenant": "demo"},
    }


def _native_message(draft: _Draft, event: Json, label: Label, at: int) -> FleetMessage:
    key = draft.request_id.encode()
    return FleetMessage(draft.topic, key, _encode(event), _gateway_headers(draft), label, at)


def _bare(draft: _Draft, reply: _Reply) -> list[FleetMessage]:
    """Log the body and nothing around it."""
    key, value = draft.request_id.encode(), _bytes_of(reply)
    headers = _gateway_headers(draft)
    return [FleetMessage(draft.topic, key, value, headers, Label.BARE, draft.at)]


def _kserve(draft: _Draft, reply: _Reply) -> list[FleetMessage]:
    """Log request and response as KServe does: binary CloudEvents, no key.

    Both share id and source, and the response has the content type of the request: a stream is
    called application/json.
    """
    prompt = [{"role": "user", "content": draft.text(3)}]
    asked = {"model": draft.model.name, "messages": prompt, "stream": reply.streamed}
    pair = (
        ("request", _encode(asked), Label.KSERVE_REQUEST, SkipReason.REQUEST_EVENT, draft.at),
        ("response", _bytes_of(reply), Label.KSERVE_RESPONSE, None, draft.at + 300),
    )
    return [
        FleetMessage(draft.topic, None, value, _kserve_headers(draft, what), label, at, reason)
        for what, value, label, reason, at in pair
    ]


def _kserve_headers(draft: _Draft, what: str) -> tuple[Header, ...]:
    forwarded = json.dumps({"Authorization": f"Bearer {CREDENTIAL_CANARY}"})
    attributes = {
        "specversion": "1.0",
        "id": draft.request_id,
        "source": "http://localhost:9081/",
        "type": f"org.kubeflow.serving.inference.{what}",
        "time": _rfc3339(draft.at),
        "recordedtime": _rfc3339(draft.at),
        "inferenceservicename": draft.instance,
        "namespace": "demo",
        "component": "predictor",
        "endpoint": "default",
        "metadata": forwarded,
    }
    headers = [(f"ce_{name}", value.encode()) for name, value in attributes.items()]
    return (*headers, ("content-type", b"application/json"))


def _structured(draft: _Draft, reply: _Reply) -> list[FleetMessage]:
    """Log a structured CloudEvent, the body as the SDKs write it: object, string or base64."""
    event: Json = {
        "specversion": "1.0",
        "id": draft.request_id,
        "source": "https://gateway.example/llm",
        "type": "org.kubeflow.serving.inference.response",
        "time": _rfc3339(draft.at),
        "partitionkey": draft.request_id,
    }
    if not reply.streamed:
        event |= {"datacontenttype": "application/json", "data": reply.chunks[0]}
    elif draft.rng.random() < 0.5:  # noqa: PLR2004 - both ways are common.
        event |= {"datacontenttype": "text/event-stream", "data": _bytes_of(reply).decode()}
    else:
        data = base64.b64encode(_bytes_of(reply)).decode()
        event |= {"datacontenttype": "text/event-stream", "data_base64": data}
    kind = ("content-type", b"application/cloudevents+json; charset=UTF-8")
    headers = (kind, *_gateway_headers(draft)[1:])
    key = draft.request_id.encode()
    return [
        FleetMessage(draft.topic, key, _encode(event), headers, Label.STRUCTURED, draft.at + 300)
    ]


def _gateway_headers(draft: _Draft) -> tuple[Header, ...]:
    trace = f"00-{draft.rng.getrandbits(128):032x}-{draft.rng.getrandbits(64):016x}-01"
    return (
        ("content-type", b"application/json"),
        ("authorization", f"Bearer {CREDENTIAL_CANARY}".encode()),
        ("traceparent", trace.encode()),
    )


def _bytes_of(reply: _Reply) -> bytes:
    return _sse(reply.chunks) if reply.streamed else _encode(reply.chunks[0])


def _sse(chunks: Sequence[Json | str]) -> bytes:
    lines = []
    for chunk in chunks:
        if isinstance(chunk, dict):
            lines.append(b"data: " + _encode(chunk) + b"\n\n")
        elif chunk == _DONE:
            lines.append(b"data: [DONE]\n\n")
        else:
            lines.append(chunk.encode())
    return b"".join(lines)


def _rfc3339(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- What goes wrong: with the reply, before it travels


def _breaks_down(reply: _Reply) -> _Reply:
    """Fail in the middle, and say [DONE] all the same."""
    error = {"message": "engine died", "type": "InternalServerError", "code": 500}
    chunks = [*reply.chunks[: len(reply.chunks) // 2], {"error": error}, _DONE]
    return replace(_refused(reply, RequestOutcome.FAILED_RESPONSE), chunks=chunks)


def _stops(reply: _Reply) -> _Reply:
    chunks = reply.chunks[: len(reply.chunks) // 2]
    cut = _refused(reply, RequestOutcome.INCOMPLETE, IncompleteReason.IDLE_TIMEOUT)
    return replace(cut, chunks=chunks, complete=False)


def _cut_inside_a_chunk(reply: _Reply) -> _Reply:
    half = len(reply.chunks) // 2
    text = _sse(reply.chunks[half : half + 1]).decode()
    cut = _refused(reply, RequestOutcome.INCOMPLETE, IncompleteReason.TRUNCATED)
    return replace(cut, chunks=[*reply.chunks[:half], text[: len(text) // 2]], complete=False)


def _without_end_mark(reply: _Reply) -> _Reply:
    return replace(reply, chunks=reply.chunks[:-1], complete=False)


def _says_more_after_the_end(reply: _Reply) -> _Reply:
    event = 'event: trtllm.perf_metrics\ndata: {"ttft":"0.048"}\n\n'
    return replace(reply, chunks=[*reply.chunks, event])


def _will_lose_a_chunk(reply: _Reply) -> _Reply:
    if reply.record is None:
        reply = _refused(reply, RequestOutcome.INCOMPLETE, IncompleteReason.GAP)
    return replace(reply, complete=False, after_timeout=True)


# --- What goes wrong: with the messages, on their way


def _loses_a_chunk(_rng: Random, messages: list[FleetMessage]) -> list[FleetMessage]:
    return [*messages[:1], *messages[2:]]


def _repeats_a_chunk(rng: Random, messages: list[FleetMessage]) -> list[FleetMessage]:
    chosen = messages[rng.randrange(1, len(messages) - 1)]
    return [*messages, _again(chosen, chosen.timestamp, SkipReason.DUPLICATE)]


def _repeats_a_chunk_late(rng: Random, messages: list[FleetMessage]) -> list[FleetMessage]:
    late = messages[-1].timestamp + 400
    return [*messages, _again(rng.choice(messages[:-1]), late, SkipReason.LATE_REPEAT)]


def _repeats_the_response(_rng: Random, messages: list[FleetMessage]) -> list[FleetMessage]:
    late = messages[-1].timestamp + 200
    return [*messages, _again(messages[-1], late, SkipReason.REPEATED_RESPONSE)]


def _swaps_neighbours(rng: Random, messages: list[FleetMessage]) -> list[FleetMessage]:
    swapped = list(messages)
    for first in range(rng.randrange(2), len(messages) - 1, 2):
        one, other = messages[first], messages[first + 1]
        swapped[first] = other._replace(timestamp=one.timestamp)
        swapped[first + 1] = one._replace(timestamp=other.timestamp)
    return swapped


def _says_done_in_vain(_rng: Random, messages: list[FleetMessage]) -> list[FleetMessage]:
    """Know that [DONE] comes too late: the error chunk has ended the request."""
    return [*messages[:-1], messages[-1]._replace(reason=SkipReason.LATE_REPEAT)]


def _again(message: FleetMessage, timestamp: int, reason: SkipReason) -> FleetMessage:
    return message._replace(label=Label.REPEAT, timestamp=timestamp, reason=reason)


# --- Messages that are no response at all


def _bad(draft: _Draft, value: bytes, reason: BadPayloadReason) -> FleetMessage:
    key, headers = draft.request_id.encode(), _gateway_headers(draft)
    return FleetMessage(draft.topic, key, value, headers, Label.BAD, draft.at, reason)


def _broken_json(draft: _Draft) -> FleetMessage:
    value = _bytes_of(_vllm_chat(draft))
    return _bad(draft, value[: len(value) * 2 // 3], BadPayloadReason.INVALID_JSON)


def _binary(draft: _Draft) -> FleetMessage:
    value = b"\x00\x00\x00\x00\x2a" + CANARY.encode() + b"\x00" + draft.rng.randbytes(120)
    return _bad(draft, value, BadPayloadReason.UNRECOGNISED_FORMAT)


def _empty(draft: _Draft) -> FleetMessage:
    return _bad(draft, b"", BadPayloadReason.EMPTY_VALUE)


def _wrong_member(draft: _Draft) -> FleetMessage:
    reply = _vllm_chat(draft)
    event = _native_event(draft, reply, draft.at) | {"sequence": "seven", "body": reply.chunks[0]}
    return _bad(draft, _encode(event), BadPayloadReason.INVALID_EVENT)


def _wrong_base64(draft: _Draft) -> FleetMessage:
    event = _native_event(draft, _vllm_chat(draft), draft.at)
    value = _encode(event | {"sequence": 0, "body_base64": f"%%% {CANARY} %%%"})
    return _bad(draft, value, BadPayloadReason.INVALID_BASE64)


def _log_line(draft: _Draft) -> FleetMessage:
    line = {"level": "info", "msg": f"answered {CANARY}", "took": 0.81}
    return _bad(draft, _encode(line), BadPayloadReason.UNRECOGNISED_SHAPE)


def _tombstone(draft: _Draft) -> FleetMessage:
    key, headers = draft.request_id.encode(), _gateway_headers(draft)
    reason = SkipReason.TOMBSTONE
    return FleetMessage(draft.topic, key, None, headers, Label.UNRELATED, draft.at, reason)


def _feedback(draft: _Draft) -> FleetMessage:
    headers = _kserve_headers(draft, "feedback")
    value, reason = _encode({"score": 1, "comment": CANARY}), SkipReason.UNRELATED_EVENT
    return FleetMessage(draft.topic, None, value, headers, Label.UNRELATED, draft.at, reason)


# --- The kinds of requests, and how common they are


class _Kind(NamedTuple):
    name: str
    weight: int
    engine: str
    shape: Callable[[_Draft], _Reply]
    carrier: Callable[[_Draft, _Reply], list[FleetMessage]]
    spoil: Callable[[_Reply], _Reply] | None = None
    disturb: Callable[[Random, list[FleetMessage]], list[FleetMessage]] | None = None


class _Noise(NamedTuple):
    name: str
    weight: int
    make: Callable[[_Draft], FleetMessage]


_REQUESTS: Final = (
    _Kind("vllm chat, kserve stream", 14, "vllm", _vllm_chat_stream, _kserve),
    _Kind("vllm chat, chunk events", 12, "vllm", _vllm_chat_stream, _per_chunk),
    _Kind("vllm chat, bare body", 8, "vllm", _vllm_chat, _bare),
    _Kind("vllm chat, structured body", 6, "vllm", _vllm_chat, _structured),
    _Kind("vllm chat, structured stream", 6, "vllm", _vllm_chat_stream, _structured),
    _Kind("vllm chat, response event", 3, "vllm", _vllm_chat_stream, _in_one_event),
    _Kind("vllm chat, raw segments", 3, "vllm", _vllm_chat_stream, _in_segments),
    _Kind("vllm completion, bare body", 4, "vllm", _vllm_completion, _bare),
    _Kind("sglang generate, chunk events", 8, "sglang", _sglang_generate_stream, _per_chunk),
    _Kind("sglang generate, response event", 2, "sglang", _sglang_generate_stream, _in_one_event),
    _Kind("sglang chat, kserve stream", 6, "sglang", _sglang_chat_stream, _kserve),
    _Kind("sglang chat, chunk events", 6, "sglang", _sglang_chat_stream, _per_chunk),
    _Kind("sglang chat, bare body", 3, "sglang", _sglang_chat, _bare),
    _Kind(
        "trtllm chat, bare stream",
        5,
        "tensorrt_llm",
        _trtllm_stream,
        _bare,
        _says_more_after_the_end,
    ),
    _Kind("trtllm chat, chunk events", 5, "tensorrt_llm", _trtllm_stream, _per_chunk),
    _Kind("trtllm chat, structured body", 4, "tensorrt_llm", _trtllm_chat, _structured),
    # Finished without numbers.
    _Kind("vllm without usage, kserve", 5, "vllm", _vllm_stream_without_usage, _kserve),
    _Kind("vllm without usage, chunks", 2, "vllm", _vllm_stream_without_usage, _per_chunk),
    _Kind("vllm, speculation off", 3, "vllm", _vllm_speculation_off, _bare),
    _Kind("vllm, two choices", 1, "vllm", _vllm_two_choices, _bare),
    _Kind("sglang, not requested", 2, "sglang", _sglang_not_requested, _kserve),
    _Kind("responses api", 1, "vllm", _responses_api, _bare),
    _Kind("anthropic messages", 1, "vllm", _anthropic_messages, _in_one_event),
    # Numbers that nobody can use.
    _Kind("sglang, two choices", 2, "sglang", _sglang_two_choices, _per_chunk),
    _Kind("trtllm, two choices", 2, "tensorrt_llm", _trtllm_two_choices, _kserve),
    _Kind("vllm, contradiction", 1, "vllm", _vllm_contradiction, _structured),
    # Failed, or cut off.
    _Kind(
        "error chunk, chunk events",
        2,
        "vllm",
        _vllm_chat_stream,
        _per_chunk,
        _breaks_down,
        _says_done_in_vain,
    ),
    _Kind("error chunk, kserve stream", 2, "sglang", _sglang_chat_stream, _kserve, _breaks_down),
    _Kind("error body", 2, "vllm", _error_body, _in_one_event),
    _Kind("stream stops", 2, "vllm", _vllm_chat_stream, _per_chunk, _stops),
    _Kind("stream cut, kserve", 2, "vllm", _vllm_chat_stream, _kserve, _cut_inside_a_chunk),
    _Kind("no end mark, structured", 1, "vllm", _vllm_chat_stream, _structured, _without_end_mark),
    _Kind(
        "lost chunk",
        1,
        "tensorrt_llm",
        _trtllm_stream,
        _per_chunk,
        _will_lose_a_chunk,
        _loses_a_chunk,
    ),
    # Delivered badly.
    _Kind("chunk twice", 2, "vllm", _vllm_chat_stream, _per_chunk, None, _repeats_a_chunk),
    _Kind("late repeat", 1, "sglang", _sglang_chat_stream, _per_chunk, None, _repeats_a_chunk_late),
    _Kind("out of order", 2, "vllm", _vllm_chat_stream, _per_chunk, None, _swaps_neighbours),
    _Kind("response twice", 1, "vllm", _vllm_chat, _structured, None, _repeats_the_response),
)

_NOISES: Final = (
    _Noise("broken json", 1, _broken_json),
    _Noise("binary", 1, _binary),
    _Noise("empty", 1, _empty),
    _Noise("wrong member", 1, _wrong_member),
    _Noise("wrong base64", 1, _wrong_base64),
    _Noise("log line", 1, _log_line),
    _Noise("tombstone", 1, _tombstone),
    _Noise("feedback event", 1, _feedback),
)

KINDS: Final = tuple(kind.name for kind in (*_REQUESTS, *_NOISES))
DECK: Final = sum(kind.weight for kind in (*_REQUESTS, *_NOISES))
"""Every kind occurs within this many requests."""


# --- The fleet


class Fleet:
    """The messages of a fleet, in the order in which they are due; endless until `close`.

    Args:
        seed: of everything that is random.
        rate: requests per second.
        start: when the first request may arrive, milliseconds since 1970.
        topic: where all messages go.

    """

    def __init__(self, *, seed: int, rate: float, start: int, topic: str = INPUT_TOPIC) -> None:
        self._rng = Random(seed)  # noqa: S311 - made-up data needs no cryptography.
        self._rate = rate
        self._topic = topic
        self._next_arrival = float(start)
        self._open = True
        self._deck: list[_Kind | _Noise] = []
        self._due: list[tuple[int, int, FleetMessage]] = []
        self._serial = 0

    def close(self) -> None:
        """Let no more requests arrive; what has begun still comes to its end."""
        self._open = False

    def __iter__(self) -> Iterator[FleetMessage]:
        return self

    def __next__(self) -> FleetMessage:
        while self._open and (not self._due or self._next_arrival <= self._due[0][0]):
            self._arrive()
        if not self._due:
            raise StopIteration
        return heapq.heappop(self._due)[2]

    def _arrive(self) -> None:
        at = int(self._next_arrival)
        self._next_arrival += self._rng.expovariate(self._rate) * 1000
        for message in _messages(self._draw(), self._rng, self._topic, at):
            heapq.heappush(self._due, (message.timestamp, self._serial, message))
            self._serial += 1

    def _draw(self) -> _Kind | _Noise:
        """Draw from a shuffled deck, so that rare kinds do not stay away for long."""
        if not self._deck:
            self._deck = [kind for kind in (*_REQUESTS, *_NOISES) for _ in range(kind.weight)]
            self._rng.shuffle(self._deck)
        return self._deck.pop()


def _messages(kind: _Kind | _Noise, rng: Random, topic: str, at: int) -> list[FleetMessage]:
    if isinstance(kind, _Noise):
        return [kind.make(_draft(kind.name, "vllm", rng, topic, at))]
    draft = _draft(kind.name, kind.engine, rng, topic, at)
    if kind.carrier is _bare:  # Nothing says who it is but the body.
        draft = replace(draft, request_id=draft.response_id)
    reply = kind.shape(draft)
    if kind.spoil is not None:
        reply = kind.spoil(reply)
    messages = kind.carrier(draft, reply)
    if kind.disturb is not None:
        messages = kind.disturb(rng, messages)
    return _settling(messages, _expected(draft, reply))


def _draft(kind: str, engine: str, rng: Random, topic: str, at: int) -> _Draft:
    model = rng.choice([model for model in MODELS if model.engine == engine])
    return _Draft(
        rng=rng,
        topic=topic,
        kind=kind,
        at=at,
        model=model,
        request_id=str(UUID(int=rng.getrandbits(128), version=4)),
        response_id=f"chatcmpl-{rng.getrandbits(128):032x}",
        generation=Generation.draw(rng, model),
    )


def _expected(draft: _Draft, reply: _Reply) -> Expected:
    return Expected(
        request_id=draft.request_id,
        response_id=draft.response_id,
        kind=draft.kind,
        engine=draft.model.engine,
        model=draft.model.name,
        outcome=reply.outcome,
        reason=reply.reason,
        record=reply.record,
        prompt_tokens=draft.generation.prompt_tokens if reply.usage else None,
        streamed=reply.streamed,
        stream_complete=reply.complete,
        after_timeout=reply.after_timeout,
    )


def _settling(messages: list[FleetMessage], expected: Expected) -> list[FleetMessage]:
    """Mark the last message that counts: once it is out, the outcome is certain."""
    counting = [place for place, message in enumerate(messages) if message.reason is None]
    last = max(counting, key=lambda place: messages[place].timestamp)
    settled = messages[last]._replace(settles=expected)
    return [*messages[:last], settled, *messages[last + 1 :]]
