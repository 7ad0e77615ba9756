"""The CloudEvents SDK for Python, in its older and its newer form."""

import subprocess
from pathlib import Path

import pytest

from tests.field.answers import Answers, as_lines
from tests.field.conftest import Topic

pytestmark = pytest.mark.field("cloudevents-python")

_SENDER = Path(__file__).with_name("senders") / "cloudevents_python.py"

_MODES = [
    "v1_binary_text",
    "v1_structured_text",
    "v1_structured_bytes",
    "v2_binary_text",
    "v2_binary_bytes",
    "v2_structured_text",
    "v2_structured_bytes",
]


@pytest.mark.parametrize("mode", _MODES)
def test_mode(topic: Topic, program: Path, answers: Answers, mode: str) -> None:
    given = answers.of_all_engines()
    subprocess.run(
        [program / "bin" / "python", _SENDER, topic.bootstrap, topic.name, mode],
        input=as_lines(given),
        text=True,
        check=True,
    )
    topic.must_give(answers.numbers(), messages=len(given))
