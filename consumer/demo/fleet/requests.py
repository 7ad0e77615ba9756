"""A request to the fleet, the numbers of its generation, and the server's reply."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Final, Self
from uuid import UUID

from msgspec import Struct
from msgspec.json import encode

from consumer.demo.fleet.messages import CANARY, OutcomeReason
from schemas import AcceptanceRecord, NoStatsReason, RequestOutcome

Json = dict[str, Any]

END_MARKER: Final = "[DONE]"

_WORDS: Final = ("Grüne", "Äpfel", "🍏", "fall", "not", "far", "from", "the", "tree")


class Model(Struct, frozen=True):
    """A model on an engine.

    Attributes:
        num_spec_tokens: maximum number of draft tokens per verify step (k).
        acceptance: probability that the first draft token of a step is accepted.
        decay: factor on that probability for each further draft token.
        adaptive: whether the drafter sometimes proposes fewer than `num_spec_tokens`.
        detailed: whether vLLM reports every step.

    """

    engine: str
    name: str
    num_spec_tokens: int
    acceptance: float
    decay: float
    adaptive: bool = False
    detailed: bool = False

    def verify(self, rng: Random, proposed: int) -> int:
        """Return how many draft tokens the model accepts before it rejects one."""
        probability = self.acceptance
        for accepted in range(proposed):
            if rng.random() >= probability:
                return accepted
            probability *= self.decay
        return proposed


MODELS: Final = (
    Model("vllm", "Qwen/Qwen3-32B", 3, 0.78, 0.90, detailed=True),
    Model("vllm", "meta-llama/Llama-3.3-70B-Instruct", 5, 0.84, 0.95),
    Model("vllm", "mistralai/Mistral-Small-24B", 4, 0.55, 0.80, adaptive=True, detailed=True),
    Model("sglang", "deepseek-ai/DeepSeek-V3.2", 3, 0.85, 0.88),
    Model("sglang", "Qwen/Qwen3-8B", 5, 0.76, 0.90),
    Model("tensorrt_llm", "meta-llama/Llama-3.1-8B-Instruct", 3, 0.74, 0.90),
    Model("tensorrt_llm", "openai/gpt-oss-120b", 4, 0.66, 0.92),
    Model("llamacpp", "ggml-org/Qwen3-14B-GGUF", 4, 0.70, 0.90),
)


class Generation(Struct, frozen=True):
    """The draft tokens that each verify step proposed and accepted, and the token counts.

    The prefill yields one token. Each step yields its accepted draft tokens and a bonus token. The
    token limit cuts the last step, and only `completion_tokens` shows the cut.
    """

    model: Model
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
            k = model.num_spec_tokens
            drafted.append(rng.randint(1, k) if model.adaptive else k)
            accepted.append(model.verify(rng, drafted[-1]))
            tokens += accepted[-1] + 1
        finish = "stop" if tokens < limit else "length"
        return cls(model, accepted, drafted, min(tokens, limit), rng.randint(8, 400), finish)

    @property
    def record(self) -> AcceptanceRecord:
        """The numbers that an engine with complete statistics would report."""
        steps, accepted, drafted = len(self.accepted), sum(self.accepted), sum(self.drafted)
        detailed = self.model.detailed and steps > 0
        return AcceptanceRecord(
            engine=self.model.engine,
            mean_acceptance_length=1 + accepted / steps if steps else 1.0,
            draft_acceptance_rate=accepted / drafted if drafted else 0.0,
            acceptance_histogram=dict(sorted(Counter(self.accepted).items())),
            num_accepted_draft_tokens=accepted,
            num_draft_tokens=drafted,
            num_spec_steps=steps,
            num_spec_tokens=self.model.num_spec_tokens,
            completion_tokens=self.completion_tokens,
            per_step_accepted=self.accepted if detailed else None,
            per_step_drafted=self.drafted if detailed else None,
        )

    def histogram(self, max_accepted: int) -> list[int]:
        """Return the number of steps that accepted 0, 1, ... and `max_accepted` draft tokens."""
        return [self.accepted.count(accepted) for accepted in range(max_accepted + 1)]

    def chunk_tokens(self) -> list[int]:
        """Return the tokens of each chunk: the first token, then one chunk per step."""
        tokens = [1, *(accepted + 1 for accepted in self.accepted)]
        tokens[-1] -= sum(tokens) - self.completion_tokens
        return tokens


class Request(Struct, frozen=True, kw_only=True):
    """A request to a model, and the generation that answers it.

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
        """Invent text with that many tokens."""
        return " ".join([CANARY, *self.rng.choices(_WORDS, k=tokens)]) + " "

    def texts(self) -> list[str]:
        """Make up the text of each chunk."""
        return [self.text(tokens) for tokens in self.generation.chunk_tokens()]

    def two_generations(self) -> list[Generation]:
        """Return two generations, for a request of two choices."""
        return [self.generation, Generation.draw(self.rng, self.model)]


class Reply(Struct, frozen=True):
    """What the server sends, and the outcome that the reply must have.

    Attributes:
        chunks: the chunks of a stream, or the one body. A string is the end marker, or raw text of
            the stream.
        record: the numbers to publish.
        unpublished: outcome and reason of a reply without a record.
        has_usage: whether the reply states the number of prompt tokens.
        is_complete: whether the stream reaches its end.
        after_timeout: see `ExpectedOutcome`.

    """

    chunks: Sequence[Json | str]
    record: AcceptanceRecord | None = None
    streamed: bool = False
    unpublished: tuple[RequestOutcome, OutcomeReason | None] = (
        RequestOutcome.NO_STATS,
        NoStatsReason.ABSENT,
    )
    has_usage: bool = True
    is_complete: bool = True
    after_timeout: bool = False
    endpoint: str = "/v1/chat/completions"
    status: int = 200

    @property
    def raw(self) -> bytes:
        """The bytes of the body."""
        if not self.streamed:
            return encode(self.chunks[0])
        return b"".join(map(server_sent_event, self.chunks))

    @property
    def body(self) -> Json | str:
        """The body as a JSON value: an object, or the text of a stream."""
        return self.raw.decode() if self.streamed else self.chunks[0]


def server_sent_event(chunk: Json | str) -> bytes:
    """Return the chunk as a server-sent event; return raw text as it is."""
    if isinstance(chunk, dict):
        return b"data: " + encode(chunk) + b"\n\n"
    return b"data: [DONE]\n\n" if chunk == END_MARKER else chunk.encode()
