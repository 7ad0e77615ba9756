"""Responses of engines with known numbers, in the shapes of tests/samples/engines.

No two answers of a series have the same numbers, so that a record says which answer it is of.
"""

import json
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

Json = dict[str, Any]

TEXT: Final = 'Grüße \u2028 "quoted" \\ 😀\n'
"""What every engine says: characters that loggers escape, replace or cut at."""

_DRAFTS_PER_STEP: Final = 3


class Numbers(NamedTuple):
    """What a record has to say about an answer."""

    engine: str
    steps: int | None
    accepted: int
    drafted: int
    tokens: int
    finish_reason: str | None = "length"
    is_complete: bool = True

    @classmethod
    def of(cls, record: Json) -> "Numbers":
        """Take them from a published record."""
        return cls(
            record["engine"],
            record["num_spec_steps"],
            record["num_accepted_draft_tokens"],
            record["num_draft_tokens"],
            record["completion_tokens"],
            record["finish_reason"],
            record["stream_complete"],
        )


class Answer(NamedTuple):
    """A response as the engine sends it, and its numbers."""

    id: str
    body: str
    streamed: bool
    numbers: Numbers

    @property
    def content_type(self) -> str:
        return "text/event-stream" if self.streamed else "application/json"

    @property
    def line(self) -> str:
        """A line of a log of answers: the body, or a native event with the whole stream."""
        if not self.streamed:
            return self.body
        return json.dumps({"request_id": self.id, "body": self.body, "final": True})


class Answers:
    """Answers with rising numbers, and all that were given."""

    def __init__(self) -> None:
        self.given: list[Answer] = []
        self._numbers = count(1)

    def give(self, engine: str, *, streamed: bool = False) -> Answer:
        """Return another answer of an engine."""
        number = next(self._numbers)
        steps, accepted = 20 + number, 30 + 2 * number
        drafted = _DRAFTS_PER_STEP * steps
        has_steps = engine != "llamacpp"
        numbers = Numbers(
            engine, steps if has_steps else None, accepted, drafted, steps + accepted + 1
        )
        body_id = f"chatcmpl-{engine}-{number}"
        parts = ENGINES[engine](steps, accepted, drafted)
        body = (_stream if streamed else _whole)(body_id, numbers.tokens, parts)
        answer = Answer(body_id, body, streamed, numbers)
        self.given.append(answer)
        return answer

    def of_all_engines(self) -> list[Answer]:
        """Return two answers of each engine, one of them streamed."""
        return [
            self.give(engine, streamed=streamed) for engine in ENGINES for streamed in (False, True)
        ]

    def numbers(self) -> list[Numbers]:
        """Return the numbers of all answers."""
        return in_order(answer.numbers for answer in self.given)


def in_order(numbers: Iterable[Numbers]) -> list[Numbers]:
    """Return numbers in a fixed order, for comparison."""
    return sorted(numbers, key=repr)


def as_lines(answers: Iterable[Answer]) -> str:
    """Return what the programs in `senders` read: a JSON object for each answer."""
    return "".join(
        json.dumps({"id": one.id, "content_type": one.content_type, "body": one.body}) + "\n"
        for one in answers
    )


def write_log(path: Path, lines: Iterable[str]) -> Path:
    """Write a log file for programs that ship logs."""
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


class _Parts(NamedTuple):
    """Members that an engine adds to the response, or chunk, and to the choice."""

    response: Json
    choice: Json


def _histogram(steps: int, accepted: int) -> list[int]:
    ones = accepted % _DRAFTS_PER_STEP
    full = accepted // _DRAFTS_PER_STEP
    return [steps - full - ones, ones, 0, full]


def _vllm(steps: int, accepted: int, drafted: int) -> _Parts:
    statistics = {
        "mean_acceptance_length": 1 + accepted / steps,
        "draft_acceptance_rate": accepted / drafted,
        "acceptance_histogram": _histogram(steps, accepted),
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": _DRAFTS_PER_STEP,
        "per_step_accepted": None,
        "per_step_drafted": None,
    }
    metrics = {"time_to_first_token_ms": 48.2, "speculative_decoding": statistics}
    return _Parts({"metrics": metrics, "system_fingerprint": "vllm-0.33.0-x"}, {})


def _sglang(steps: int, accepted: int, drafted: int) -> _Parts:
    details = {
        "spec_accept_rate": accepted / drafted,
        "spec_accept_length": (steps + accepted + 1) / steps,
        "spec_cap_length": 0.0,
        "spec_block_accept_length": 0.0,
        "spec_num_correct_drafts": accepted,
        "spec_num_proposed_drafts": drafted,
        "spec_verify_ct": steps,
        "spec_correct_drafts_histogram": _histogram(steps, accepted),
        "spec_cap_lens_histogram": [],
    }
    return _Parts({"sglext": {"spec_tokens_details": details}}, {"matched_stop": None})


def _tensorrt_llm(steps: int, accepted: int, drafted: int) -> _Parts:
    statistics = {
        "acceptance_rate": accepted / drafted,
        "total_accepted_draft_tokens": accepted,
        "total_draft_tokens": drafted,
        "num_spec_steps": steps,
        "acceptance_histogram": _histogram(steps, accepted),
        "num_spec_tokens": _DRAFTS_PER_STEP,
    }
    mean = 1 + accepted / steps
    return _Parts({}, {"avg_decoded_tokens_per_iter": mean, "speculative_decoding": statistics})


def _llamacpp(steps: int, accepted: int, drafted: int) -> _Parts:
    timings = {
        "prompt_n": 20,
        "predicted_n": steps + accepted + 1,
        "predicted_ms": 610.0,
        "draft_n": drafted,
        "draft_n_accepted": accepted,
    }
    return _Parts({"timings": timings}, {})


ENGINES: Final[dict[str, Callable[[int, int, int], _Parts]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt_llm": _tensorrt_llm,
    "llamacpp": _llamacpp,
}


def _whole(body_id: str, tokens: int, parts: _Parts) -> str:
    message = {"role": "assistant", "content": TEXT}
    choice = {"index": 0, "message": message, "finish_reason": "length", **parts.choice}
    return json.dumps(
        {
            **_head(body_id, "chat.completion"),
            "choices": [choice],
            "usage": _usage(tokens),
            **parts.response,
        },
        ensure_ascii=False,
    )


def _stream(body_id: str, tokens: int, parts: _Parts) -> str:
    def chunk(delta: Json, finish: str | None = None, **members: Any) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, **members}
        return {**_head(body_id, "chat.completion.chunk"), "choices": [choice]}

    last = _head(body_id, "chat.completion.chunk")
    chunks = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": TEXT[:8]}),
        chunk({"content": TEXT[8:]}),
        chunk({}, "length", **parts.choice),
        {**last, "choices": [], "usage": _usage(tokens), **parts.response},
    ]
    texts = [json.dumps(one, ensure_ascii=False) for one in chunks]
    return "".join(f"data: {text}\n\n" for text in [*texts, "[DONE]"])


def _head(body_id: str, kind: str) -> Json:
    return {"id": body_id, "object": kind, "created": 1791000000, "model": "field-8b"}


def _usage(tokens: int) -> Json:
    return {"prompt_tokens": 20, "total_tokens": 20 + tokens, "completion_tokens": tokens}
