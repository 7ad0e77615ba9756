"""The parts of OpenAI's wire format that the engines share."""

from consumer.demo.fleet.requests import Generation, Json, Request


def head(request: Request, kind: str) -> Json:
    """Return the first members of every body and every chunk."""
    return {
        "id": request.response_id,
        "object": kind,
        "created": request.at // 1000,
        "model": request.model.name,
    }


def choice(content: Json, finish_reason: str | None, index: int = 0) -> Json:
    """Return a choice; `content` is its message, its text or its delta."""
    return {"index": index} | content | {"logprobs": None, "finish_reason": finish_reason}


def message_choice(request: Request, generation: Generation, index: int, **more: object) -> Json:
    """Return a choice of a chat body; `more` are further members of its message."""
    text = request.text(generation.completion_tokens)
    message = {"role": "assistant", "content": text} | more
    return choice({"message": message}, generation.finish_reason, index)


def usage(*generations: Generation) -> Json:
    """Return the usage of one prompt and all its generations."""
    prompt = generations[0].prompt_tokens
    completion = sum(generation.completion_tokens for generation in generations)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }
