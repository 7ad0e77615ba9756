"""A request to the fleet, and the reply to it before that travels."""

from collections.abc import Sequence
from random import Random
from typing import Any, Final, Self
from uuid import UUID

from msgspec import Struct
from msgspec.json import encode

from consumer.demo.fleet.generation import MODELS, Generation, Model
from consumer.demo.fleet.messages import CANARY, OutcomeReason
from schemas import AcceptanceRecord, NoStatsReason, RequestOutcome

Json = dict[str, Any]

DONE: Final = "[DONE]"

_WORDS: Final = ("Grüne", "Äpfel", "🍏", "fall", "not", "far", "from", "the", "tree")


class Request(Struct, frozen=True, kw_only=True):
    """A request to a model, and the generation that it asks for.

    Attributes:
        at: when it arrives, milliseconds since 1970.

    """

    rng: Random
    at: int
    request_id: str
    response_id: str
    generation: Generation

    @classmethod
    def draw(cls, rng: Random, engine: str, at: int) -> Self:
        """Draw a request to one of the engine's models."""
        model = rng.choice([model for model in MODELS if model.engine == engine])
        return cls(
            rng=rng,
            at=at,
            request_id=str(UUID(int=rng.getrandbits(128), version=4)),
            response_id=f"chatcmpl-{rng.getrandbits(128):032x}",
            generation=Generation.draw(rng, model),
        )

    @property
    def model(self) -> Model:
        """The model that serves it."""
        return self.generation.model

    @property
    def instance(self) -> str:
        """Name of the server."""
        return f"{self.model.engine}-{self.model.name.rpartition('/')[2].lower()}-0"

    def text(self, tokens: int) -> str:
        """Make up a text of that many tokens."""
        return " ".join([CANARY, *self.rng.choices(_WORDS, k=tokens)]) + " "

    def texts(self) -> list[str]:
        """Make up the text of each chunk."""
        return [self.text(tokens) for tokens in self.generation.pieces()]

    def whole_text(self) -> str:
        """Make up the text of the generation."""
        return self.text(self.generation.completion_tokens)

    def two_generations(self) -> list[Generation]:
        """Return the generation and another one, of a request for two choices."""
        return [self.generation, Generation.draw(self.rng, self.model)]


class Reply(Struct, frozen=True):
    """What the server sent, and what must come of it.

    Attributes:
        chunks: those of a stream, or the one body. A string is the end mark, or raw text of the
            stream.
        record: the numbers to publish.
        unpublished: outcome and reason where there is no record.
        usage: the reply tells the number of prompt tokens.
        complete: it is not a stream that is cut off.
        after_timeout: see `Expected`.

    """

    chunks: Sequence[Json | str]
    record: AcceptanceRecord | None = None
    streamed: bool = False
    unpublished: tuple[RequestOutcome, OutcomeReason | None] = (
        RequestOutcome.NO_STATS,
        NoStatsReason.ABSENT,
    )
    usage: bool = True
    complete: bool = True
    after_timeout: bool = False
    endpoint: str = "/v1/chat/completions"
    status: int = 200

    @property
    def raw(self) -> bytes:
        """The bytes of the body."""
        if not self.streamed:
            return encode(self.chunks[0])
        return b"".join(server_sent(chunk) for chunk in self.chunks)

    @property
    def body(self) -> Json | str:
        """The body as a JSON value: an object, or the text of a stream."""
        return self.raw.decode() if self.streamed else self.chunks[0]


def server_sent(chunk: Json | str) -> bytes:
    """Return the chunk as a server-sent event."""
    if isinstance(chunk, dict):
        return b"data: " + encode(chunk) + b"\n\n"
    return b"data: [DONE]\n\n" if chunk == DONE else chunk.encode()
