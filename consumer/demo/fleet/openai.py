"""What the engines share of OpenAI's wire format."""

from consumer.demo.fleet.exchange import Json, Request
from consumer.demo.fleet.generation import Generation


def head(request: Request, kind: str) -> Json:
    """Return the first members of every body and every chunk."""
    return {
        "id": request.response_id,
        "object": kind,
        "created": request.at // 1000,
        "model": request.model.name,
    }


def choice(said: Json, finish_reason: str | None, index: int = 0) -> Json:
    """Return a choice, of which the message, text or delta is given."""
    return {"index": index} | said | {"logprobs": None, "finish_reason": finish_reason}


def message_choice(request: Request, generation: Generation, index: int, **more: object) -> Json:
    """Return a choice of a chat body; its message has `more` members than role and content."""
    text = request.text(generation.completion_tokens)
    message = {"role": "assistant", "content": text} | more
    return choice({"message": message}, generation.finish_reason, index)


def usage(*generations: Generation) -> Json:
    """Return the usage object: one prompt, and the tokens of all its generations."""
    prompt = generations[0].prompt_tokens
    completion = sum(generation.completion_tokens for generation in generations)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }
