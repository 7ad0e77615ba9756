"""A finished response without its content, as adapters receive it."""

import msgspec


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts as the response states them, or None."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class ParsedResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One finished response: the bytes at the declared places, and its other facts.

    Attributes:
        stats: raw JSON by declared place (`metrics.speculative_decoding`), the latest of a stream;
            neither null nor content.
        usage: token counts, if the response has any.
        choices: number of generations in the response (n, or n times the number of prompts).
        finish_reason: finish reason of the first choice that has one.
        model: model that the body names.
        streamed: whether the response came as server-sent events or chunks.

    """

    stats: dict[str, bytes]
    usage: Usage | None = None
    choices: int = 1
    finish_reason: str | None = None
    model: str | None = None
    streamed: bool = False
