"""SGLang's replies: the numbers are in `meta_info` of `/generate`, and in `sglext` of a chat."""

from itertools import zip_longest

from msgspec.structs import replace

from consumer.demo.fleet import openai
from consumer.demo.fleet.requests import END_MARKER, Generation, Json, Reply, Request
from schemas import AcceptanceRecord, RequestOutcome


def generate_stream(request: Request) -> Reply:
    """Stream `/generate`: the text is cumulative, the numbers are in the last chunk."""
    generation, chunks = request.generation, list[Json]()
    text, tokens = "", 0
    meta: Json = {"id": request.response_id, "prompt_tokens": generation.prompt_tokens}
    for more in generation.chunk_tokens():
        text, tokens = text + request.text(more), tokens + more
        now = {"finish_reason": None, "completion_tokens": tokens, "cached_tokens": 0}
        chunks.append({"text": text, "output_ids": [11] * more, "meta_info": meta | now})
    finish: Json = {"type": generation.finish_reason}
    if generation.finish_reason == "length":
        finish["length"] = generation.completion_tokens
    chunks[-1]["meta_info"] |= {"finish_reason": finish, "e2e_latency": 0.81}
    if generation.accepted:
        chunks[-1]["meta_info"] |= _numbers(generation)
    return Reply([*chunks, END_MARKER], _record(generation), streamed=True, endpoint="/generate")


def chat_stream(request: Request) -> Reply:
    """Stream a chat, with or without usage; without it, the token counts are unknown."""
    generation, head = request.generation, openai.head(request, "chat.completion.chunk")
    chunks = [
        _chunk(head, {"role": "assistant", "content": ""}),
        *(_chunk(head, {"content": text}) for text in request.texts()),
        _chunk(head, {}, generation.finish_reason),
    ]
    has_usage, record = True, _record(generation)
    if record is not None:
        sglext = {"spec_tokens_details": _details(generation)}
        chunks.append(head | {"choices": [], "usage": None, "sglext": sglext})
        has_usage = request.rng.random() < 0.7  # noqa: PLR2004 - share that asks for usage.
        if not has_usage:
            record = replace(record, completion_tokens=None)
    if has_usage:
        chunks.append(head | {"choices": [], "usage": openai.usage(generation)})
    return Reply([*chunks, END_MARKER], record, streamed=True, has_usage=has_usage)


def chat(request: Request) -> Reply:
    """Answer a chat in one body."""
    body, record = _chat_body(request), _record(request.generation)
    if record is not None:
        body["sglext"] = {"spec_tokens_details": _details(request.generation)}
    return Reply([body], record)


def not_requested(request: Request) -> Reply:
    """Answer a chat that did not ask for the numbers."""
    return Reply([_chat_body(request)])


def two_choices(request: Request) -> Reply:
    """Stream two choices; the list of their numbers does not name the choices."""
    both = request.two_generations()
    head = openai.head(request, "chat.completion.chunk")
    heads = [head | {"id": f"{request.response_id}-{index}"} for index in range(2)]
    chunks = [
        _chunk(heads[index], {"content": request.text(tokens)}, None, index)
        for tokens_of_both in zip_longest(*(generation.chunk_tokens() for generation in both))
        for index, tokens in enumerate(tokens_of_both)
        if tokens is not None
    ]
    for index, generation in enumerate(both):
        chunks.append(_chunk(heads[index], {}, generation.finish_reason, index))
    usage = heads[0] | {"choices": [], "usage": openai.usage(*both)}
    details = [_details(generation) for generation in both if generation.accepted]
    if not details:
        return Reply([*chunks, usage, END_MARKER], streamed=True)
    sglext = {"spec_tokens_details": details}
    numbers = heads[0] | {"choices": [], "usage": None, "sglext": sglext}
    unpublished = (RequestOutcome.UNATTRIBUTABLE, None)
    return Reply([*chunks, numbers, usage, END_MARKER], streamed=True, unpublished=unpublished)


def _record(generation: Generation) -> AcceptanceRecord | None:
    if not generation.accepted:
        return None  # SGLang leaves out its keys.
    return replace(generation.record, num_spec_tokens=None, draft_tokens_measured=False)


def _numbers(generation: Generation) -> Json:
    """Return SGLang's numbers; the histogram ends with the last bucket in use."""
    record = generation.record
    return {
        "spec_accept_rate": record.draft_acceptance_rate,
        "spec_accept_length": generation.completion_tokens / len(generation.accepted),
        "spec_num_correct_drafts": record.num_accepted_draft_tokens,
        "spec_num_proposed_drafts": record.num_draft_tokens,
        "spec_verify_ct": record.num_spec_steps,
        "spec_correct_drafts_histogram": generation.histogram(max(generation.accepted)),
    }


def _details(generation: Generation) -> Json:
    """Return the fixed nine keys of `spec_tokens_details`."""
    unset = {"spec_cap_length": 0.0, "spec_block_accept_length": 0.0, "spec_cap_lens_histogram": []}
    return _numbers(generation) | unset


def _chunk(head: Json, delta: Json, finish_reason: str | None = None, index: int = 0) -> Json:
    delta = {"role": None, "content": None, "reasoning_content": None} | delta
    choice = openai.choice({"delta": delta}, finish_reason, index) | {"matched_stop": None}
    return head | {"choices": [choice], "usage": None}


def _chat_body(request: Request) -> Json:
    choice = openai.message_choice(request, request.generation, 0, reasoning_content=None)
    return openai.head(request, "chat.completion") | {
        "choices": [choice | {"matched_stop": None}],
        "usage": openai.usage(request.generation),
        "metadata": {"weight_version": "default"},
    }
