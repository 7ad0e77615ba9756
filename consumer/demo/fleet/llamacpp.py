"""llama.cpp's replies: drafts and accepted drafts in `timings`, and nothing by step."""

from msgspec.structs import replace

from consumer.demo.fleet import openai
from consumer.demo.fleet.requests import END_MARKER, Generation, Json, Reply, Request
from schemas import AcceptanceRecord


def chat_stream(request: Request) -> Reply:
    """Stream a chat whose client asks for usage."""
    generation, head = request.generation, openai.head(request, "chat.completion.chunk")
    choices = [openai.choice({"delta": {"content": text}}, None) for text in request.texts()]
    choices.append(openai.choice({"delta": {}}, generation.finish_reason))
    chunks = [head | {"choices": [choice]} for choice in choices]
    last = head | {"choices": []} | _numbers(generation)
    return Reply([*chunks, last, END_MARKER], _record(generation), streamed=True)


def chat(request: Request) -> Reply:
    """Answer a chat in one body."""
    generation = request.generation
    choices = [openai.message_choice(request, generation, 0)]
    body = openai.head(request, "chat.completion") | {"choices": choices}
    return Reply([body | _numbers(generation)], _record(generation))


def _record(generation: Generation) -> AcceptanceRecord | None:
    if not generation.drafted:
        return None
    return replace(
        generation.record,
        mean_acceptance_length=None,
        acceptance_histogram=None,
        num_spec_steps=None,
        num_spec_tokens=None,
    )


def _numbers(generation: Generation) -> Json:
    """Return usage and timings, which have the drafts only if there are any."""
    timings: Json = {
        "prompt_n": generation.prompt_tokens,
        "predicted_n": generation.completion_tokens,
        "predicted_per_second": 80.5,
    }
    if generation.drafted:
        timings["draft_n"] = generation.record.num_draft_tokens
        timings["draft_n_accepted"] = generation.record.num_accepted_draft_tokens
    return {"usage": openai.usage(generation), "timings": timings}
