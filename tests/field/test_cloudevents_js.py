"""The CloudEvents SDK for JavaScript, with kafkajs."""

import subprocess
from pathlib import Path

import pytest

from tests.field.answers import Answers, as_lines
from tests.field.conftest import Topic

pytestmark = pytest.mark.field("cloudevents-js")

_SENDER = Path(__file__).with_name("senders") / "cloudevents_js.mjs"


@pytest.mark.parametrize(
    "mode", ["binary_text", "binary_object", "structured_text", "structured_object"]
)
def test_mode(topic: Topic, program: Path, answers: Answers, mode: str) -> None:
    given = answers.of_all_engines()
    subprocess.run(
        ["node", _SENDER, topic.bootstrap, topic.name, mode],
        input=as_lines(given),
        encoding="utf-8",
        cwd=program,
        check=True,
    )
    topic.must_give(answers.numbers(), messages=len(given))
