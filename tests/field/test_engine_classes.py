"""Responses and log lines as vLLM's and SGLang's own code writes them."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.field.answers import Answer, Answers, as_lines
from tests.field.conftest import Topic

_SENDERS = Path(__file__).with_name("senders")


@pytest.mark.field("vllm")
@pytest.mark.parametrize("mode", ["vllm", "vllm_batch"])
def test_vllm(topic: Topic, program: Path, answers: Answers, mode: str) -> None:
    """Bodies of the server, and the output of `vllm run-batch`, which has no streams."""
    kinds = (False,) if mode == "vllm_batch" else (False, True)
    given = [answers.give("vllm", streamed=streamed) for streamed in kinds * 3]
    _send(topic, program, "engine_classes.py", mode, as_lines(given))
    topic.must_give(answers.numbers(), messages=len(given))


@pytest.mark.field("sglang")
def test_sglang(topic: Topic, program: Path, answers: Answers) -> None:
    given = [answers.give("sglang", streamed=streamed) for streamed in (False, True) * 3]
    _send(topic, program, "engine_classes.py", "sglang", as_lines(given))
    topic.must_give(answers.numbers(), messages=len(given))


@pytest.mark.field("sglang")
@pytest.mark.parametrize("logger", ["request_log", "metrics_file"])
def test_sglang_logs(
    topic: Topic, program: Path, tmp_path: Path, answers: Answers, logger: str
) -> None:
    """The log of requests has a line for the request too, which is skipped."""
    given = [answers.give("sglang") for _ in range(6)]
    lines = "".join(json.dumps(_native(one)) + "\n" for one in given)
    _send(topic, program, "sglang_logs.py", logger, lines, tmp_path / "logs")
    lines_per_request = 2 if logger == "request_log" else 1
    topic.must_give(answers.numbers(), messages=lines_per_request * len(given))


def _send(topic: Topic, program: Path, sender: str, mode: str, lines: str, *more: Path) -> None:
    arguments = [topic.bootstrap, topic.name, str(program / "source"), mode, *map(str, more)]
    subprocess.run(
        [program / "bin" / "python", _SENDERS / sender, *arguments],
        input=lines,
        encoding="utf-8",
        check=True,
    )


def _native(answer: Answer) -> dict[str, object]:
    """Return an answer as SGLang's own endpoint `/generate` gives it."""
    body = json.loads(answer.body)
    tokens = answer.numbers.tokens
    return {
        "text": body["choices"][0]["message"]["content"],
        "output_ids": [1, 2, 3],
        "meta_info": {
            "id": answer.id,
            "finish_reason": {"type": "length", "length": tokens},
            "prompt_tokens": 20,
            "completion_tokens": tokens,
            "e2e_latency": 0.81,
            **body["sglext"]["spec_tokens_details"],
        },
    }
