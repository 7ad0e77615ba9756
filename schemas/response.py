"""What adapters are given: a finished response with its content taken out."""

import msgspec


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts as the response states them; null where it does not."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class ParsedResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One finished response: the bytes at the declared places, and what is known around them.

    Attributes:
        stats: the raw JSON at each declared place that was filled, by the place as declared
            (`metrics.speculative_decoding`). Of a stream, the latest. Never null, never content.
        usage: token counts, if the response had any.
        choices: number of generations in the response (n, or n times the number of prompts).
        finish_reason: of the first choice that had one.
        model: as the body names it.
        streamed: whether it came as server-sent events or chunks.

    """

    stats: dict[str, bytes]
    usage: Usage | None = None
    choices: int = 1
    finish_reason: str | None = None
    model: str | None = None
    streamed: bool = False
