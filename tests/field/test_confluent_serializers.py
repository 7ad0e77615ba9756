"""The Schema Registry serializers of Confluent's client for Python."""

import subprocess
from pathlib import Path

import pytest

from tests.field.answers import Answer, Answers
from tests.field.conftest import Topic

pytestmark = pytest.mark.field("confluent-serializers")

_SENDER = Path(__file__).with_name("senders") / "confluent_serializers.py"


@pytest.mark.parametrize("mode", ["json", "json_header"])
def test_mode(topic: Topic, program: Path, answers: Answers, mode: str) -> None:
    given = answers.of_all_engines()
    _send(topic, program, given, mode)
    topic.must_give(answers.numbers(), messages=len(given))


def test_avro(topic: Topic, program: Path, answers: Answers) -> None:
    """It is refused with a reason that names it."""
    given = answers.of_all_engines()
    _send(topic, program, given, "avro")
    refused = ["schema_registry_frame"] * len(given)
    topic.must_give([], messages=len(given), dead_letters=refused)


def _send(topic: Topic, program: Path, given: list[Answer], mode: str) -> None:
    subprocess.run(
        [program / "bin" / "python", _SENDER, topic.bootstrap, topic.name, mode],
        input="".join(one.line + "\n" for one in given),
        encoding="utf-8",
        check=True,
    )
