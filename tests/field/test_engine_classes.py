"""Responses as vLLM's and SGLang's own classes write them, alone in a message."""

import subprocess
from pathlib import Path

import pytest

from tests.field.answers import Answers, as_lines
from tests.field.conftest import Topic

_SENDER = Path(__file__).with_name("senders") / "engine_classes.py"


@pytest.mark.field("vllm")
def test_vllm(topic: Topic, program: Path, answers: Answers) -> None:
    _write(topic, program, answers, "vllm")


@pytest.mark.field("sglang")
def test_sglang(topic: Topic, program: Path, answers: Answers) -> None:
    _write(topic, program, answers, "sglang")


def _write(topic: Topic, program: Path, answers: Answers, engine: str) -> None:
    given = [answers.give(engine, streamed=streamed) for streamed in (False, True) * 3]
    arguments = [topic.bootstrap, topic.name, engine, str(program / "source")]
    subprocess.run(
        [program / "bin" / "python", _SENDER, *arguments],
        input=as_lines(given),
        encoding="utf-8",
        check=True,
    )
    topic.must_give(answers.numbers(), messages=len(given))
