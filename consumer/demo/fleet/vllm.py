"""vLLM's replies: the numbers are in `metrics` of a body, or of the usage chunk of a stream."""

from typing import Final

from msgspec.structs import replace

from consumer.demo.fleet import openai
from consumer.demo.fleet.requests import END_MARKER, Generation, Json, Reply, Request
from schemas import MalformedReason, NoStatsReason, RequestOutcome

_FINGERPRINT: Final = "vllm-0.33.0-demo"
_TIMES: Final = (
    "time_to_first_token_ms",
    "generation_time_ms",
    "queue_time_ms",
    "mean_itl_ms",
    "tokens_per_second",
)


def speculative_decoding(generation: Generation) -> Json:
    """Return the numbers that vLLM reports; a stream leaves out the null ones."""
    record = generation.record
    return {
        "mean_acceptance_length": record.mean_acceptance_length,
        "draft_acceptance_rate": record.draft_acceptance_rate,
        "acceptance_histogram": generation.histogram(generation.model.num_spec_tokens),
        "num_spec_steps": record.num_spec_steps,
        "num_accepted_draft_tokens": record.num_accepted_draft_tokens,
        "num_draft_tokens": record.num_draft_tokens,
        "num_spec_tokens": record.num_spec_tokens,
        "per_step_accepted": record.per_step_accepted,
        "per_step_drafted": record.per_step_drafted,
    }


def chat_stream(request: Request) -> Reply:
    """Stream a chat, with usage."""
    generation, head = request.generation, openai.head(request, "chat.completion.chunk")

    def chunk(delta: Json, finish_reason: str | None = None) -> Json:
        return head | {"choices": [openai.choice({"delta": delta}, finish_reason)]}

    numbers = speculative_decoding(generation).items()
    last = {
        "choices": [],
        "usage": openai.usage(generation),
        "system_fingerprint": _FINGERPRINT,
        "metrics": {"speculative_decoding": {k: v for k, v in numbers if v is not None}},
    }
    chunks = [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": text}) for text in request.texts()),
        chunk({"content": ""}, generation.finish_reason),
        head | last,
    ]
    return Reply([*chunks, END_MARKER], generation.record, streamed=True)


def chat_stream_without_usage(request: Request) -> Reply:
    """Stream a chat without the chunk that would hold the numbers."""
    reply = chat_stream(request)
    return replace(
        reply,
        chunks=[*reply.chunks[:-2], END_MARKER],
        record=None,
        unpublished=(RequestOutcome.NO_STATS, NoStatsReason.STREAM_WITHOUT_USAGE_CHUNK),
        has_usage=False,
    )


def chat(request: Request) -> Reply:
    """Answer a chat in one body."""
    generation = request.generation
    return Reply([_chat_body(request, [generation], _metrics(generation))], generation.record)


def completion(request: Request) -> Reply:
    """Answer a completion in one body."""
    generation = request.generation
    text = {"text": request.text(generation.completion_tokens)}
    choices = [openai.choice(text, generation.finish_reason) | {"stop_reason": None}]
    usage, metrics = openai.usage(generation), _metrics(generation)
    body = _body(request, "text_completion", choices, usage, metrics)
    return Reply([body], generation.record, endpoint="/v1/completions")


def speculation_off(request: Request) -> Reply:
    """Answer a chat without speculation."""
    return Reply([_chat_body(request, [request.generation], None)])


def two_choices(request: Request) -> Reply:
    """Answer a chat with two choices, for which vLLM reports no numbers."""
    return Reply([_chat_body(request, request.two_generations(), None)])


def contradiction(request: Request) -> Reply:
    """Report one step more in the histogram than in the number of steps."""
    metrics = _metrics(request.generation)
    metrics["speculative_decoding"]["acceptance_histogram"][0] += 1
    body = _chat_body(request, [request.generation], metrics)
    reason = MalformedReason.HISTOGRAM_STEPS
    return Reply([body], unpublished=(RequestOutcome.MALFORMED_STATS, reason))


def responses_api(request: Request) -> Reply:
    """Answer on `/v1/responses`, which reports no numbers."""
    text = request.text(request.generation.completion_tokens)
    part = {"type": "output_text", "annotations": [], "text": text}
    item = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
    body = {
        "id": request.response_id,
        "object": "response",
        "created_at": request.at // 1000,
        "model": request.model.name,
        "status": "completed",
        "output": [item],
    }
    return _without_stats_by_design(request, body, "/v1/responses")


def anthropic_messages(request: Request) -> Reply:
    """Answer on `/v1/messages`, which reports no numbers."""
    text = request.text(request.generation.completion_tokens)
    body = {
        "id": request.response_id,
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "model": request.model.name,
        "stop_reason": "end_turn",
    }
    return _without_stats_by_design(request, body, "/v1/messages")


def error_body(_request: Request) -> Reply:
    """Refuse the request."""
    error = {"message": "engine is overloaded", "type": "ServiceUnavailable", "code": 503}
    failed = (RequestOutcome.FAILED_RESPONSE, None)
    return Reply([{"error": error}], unpublished=failed, has_usage=False, status=503)


def _chat_body(request: Request, generations: list[Generation], metrics: Json | None) -> Json:
    choices = [
        openai.message_choice(request, generation, index, refusal=None, tool_calls=[])
        | {"stop_reason": None}
        for index, generation in enumerate(generations)
    ]
    return _body(request, "chat.completion", choices, openai.usage(*generations), metrics)


def _body(
    request: Request, kind: str, choices: list[Json], usage: Json, metrics: Json | None
) -> Json:
    return openai.head(request, kind) | {
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": _FINGERPRINT,
        "usage": usage | {"prompt_tokens_details": None},
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "kv_transfer_params": None,
        "metrics": metrics,
    }


def _metrics(generation: Generation) -> Json:
    return dict.fromkeys(_TIMES) | {"speculative_decoding": speculative_decoding(generation)}


def _without_stats_by_design(request: Request, body: Json, endpoint: str) -> Reply:
    tokens = {
        "input_tokens": request.generation.prompt_tokens,
        "output_tokens": request.generation.completion_tokens,
    }
    unpublished = (RequestOutcome.NO_STATS, NoStatsReason.ENDPOINT_WITHOUT_STATS)
    return Reply([body | {"usage": tokens}], unpublished=unpublished, endpoint=endpoint)
