"""TensorRT-LLM's replies: the numbers are in the finished choice."""

from consumer.demo.fleet import openai
from consumer.demo.fleet.requests import END_MARKER, Generation, Json, Reply, Request
from schemas import AcceptanceRecord, RequestOutcome


def chat_stream(request: Request) -> Reply:
    """Stream a chat."""
    generation, head = request.generation, openai.head(request, "chat.completion.chunk")
    choices: list[Json] = [{"index": 0, "delta": {"role": "assistant"}}]
    for text in request.texts():
        delta = {"content": text, "reasoning_content": ""}
        choices.append({"index": 0, "delta": delta, "avg_decoded_tokens_per_iter": 2.0})
    choices[-1] |= {"finish_reason": generation.finish_reason} | _numbers(generation)
    chunks = [head | {"choices": [choice]} for choice in choices]
    last = head | {"choices": [], "usage": _usage(generation)}
    return Reply([*chunks, last, END_MARKER], _record(generation), streamed=True)


def chat(request: Request) -> Reply:
    """Answer a chat in one body."""
    return Reply([_chat_body(request, request.generation)], _record(request.generation))


def two_choices(request: Request) -> Reply:
    """Answer a chat with two choices, each with its own numbers."""
    both = request.two_generations()
    body = _chat_body(request, *both)
    if not any(generation.accepted for generation in both):
        return Reply([body])
    return Reply([body], unpublished=(RequestOutcome.UNATTRIBUTABLE, None))


def _record(generation: Generation) -> AcceptanceRecord | None:
    return generation.record if generation.accepted else None


def _chat_body(request: Request, *generations: Generation) -> Json:
    choices = []
    for index, generation in enumerate(generations):
        choice = openai.message_choice(request, generation, index, reasoning_content=None)
        more = {
            "stop_reason": None,
            "disaggregated_params": None,
            "avg_decoded_tokens_per_iter": generation.record.mean_acceptance_length,
        }
        choices.append(choice | more | _numbers(generation))
    head = openai.head(request, "chat.completion")
    return head | {"choices": choices, "usage": _usage(*generations)}


def _numbers(generation: Generation) -> Json:
    """Return the member of a finished choice; it is absent without a verify step."""
    if not generation.accepted:
        return {}
    record = generation.record
    numbers = {
        "acceptance_rate": record.draft_acceptance_rate,
        "total_accepted_draft_tokens": record.num_accepted_draft_tokens,
        "total_draft_tokens": record.num_draft_tokens,
        "num_spec_steps": record.num_spec_steps,
        "acceptance_histogram": generation.histogram(generation.model.num_spec_tokens),
        "num_spec_tokens": record.num_spec_tokens,
    }
    return {"speculative_decoding": numbers}


def _usage(*generations: Generation) -> Json:
    return openai.usage(*generations) | {"prompt_tokens_details": {"cached_tokens": 0}}
