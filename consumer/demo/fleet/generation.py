"""The models of the fleet, and the numbers of one generation."""

from collections import Counter
from random import Random
from typing import Final, Self

from msgspec import Struct

from schemas import AcceptanceRecord


class Model(Struct, frozen=True):
    """A model on an engine.

    Attributes:
        width: most draft tokens per verify step (k).
        likely: chance that the first draft of a step is accepted.
        fades: factor on that chance for each further draft.
        adaptive: the drafter proposes fewer than `width` at times.
        detailed: vLLM reports every step.

    """

    engine: str
    name: str
    width: int
    likely: float
    fades: float
    adaptive: bool = False
    detailed: bool = False

    def accept(self, rng: Random, proposed: int) -> int:
        """Verify drafts until the first that is refused; return how many were accepted."""
        chance = self.likely
        for accepted in range(proposed):
            if rng.random() >= chance:
                return accepted
            chance *= self.fades
        return proposed


MODELS: Final = (
    Model("vllm", "Qwen/Qwen3-32B", 3, 0.78, 0.90, detailed=True),
    Model("vllm", "meta-llama/Llama-3.3-70B-Instruct", 5, 0.84, 0.95),
    Model("vllm", "mistralai/Mistral-Small-24B", 4, 0.55, 0.80, adaptive=True, detailed=True),
    Model("sglang", "deepseek-ai/DeepSeek-V3.2", 3, 0.85, 0.88),
    Model("sglang", "Qwen/Qwen3-8B", 5, 0.76, 0.90),
    Model("tensorrt_llm", "meta-llama/Llama-3.1-8B-Instruct", 3, 0.74, 0.90),
    Model("tensorrt_llm", "openai/gpt-oss-120b", 4, 0.66, 0.92),
)


class Generation(Struct, frozen=True):
    """One generation: drafts proposed and accepted per verify step, and the tokens that remain.

    The prefill gives a token, every step its accepted drafts and a bonus token; the token limit
    cuts what the last step gave, and only `completion_tokens` feels it.
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
            drafted.append(rng.randint(1, model.width) if model.adaptive else model.width)
            accepted.append(model.accept(rng, drafted[-1]))
            tokens += accepted[-1] + 1
        finish = "stop" if tokens < limit else "length"
        return cls(model, accepted, drafted, min(tokens, limit), rng.randint(8, 400), finish)

    @property
    def record(self) -> AcceptanceRecord:
        """The numbers, as an engine that reports all of them would."""
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
            num_spec_tokens=self.model.width,
            completion_tokens=self.completion_tokens,
            per_step_accepted=self.accepted if detailed else None,
            per_step_drafted=self.drafted if detailed else None,
        )

    def histogram(self, most: int) -> list[int]:
        """Return the number of steps that accepted 0, 1, ... and `most` drafts."""
        return [self.accepted.count(accepted) for accepted in range(most + 1)]

    def pieces(self) -> list[int]:
        """Return the tokens of each chunk: the first token, then one chunk per step."""
        pieces = [1, *(accepted + 1 for accepted in self.accepted)]
        pieces[-1] -= sum(pieces) - self.completion_tokens
        return pieces
