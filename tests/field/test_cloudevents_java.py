"""The CloudEvents SDK for Java, with Kafka's own client."""

import subprocess
from pathlib import Path

import pytest

from tests.field.answers import Answers, as_lines
from tests.field.conftest import Topic

pytestmark = pytest.mark.field("cloudevents-java")

_SENDER = Path(__file__).with_name("senders") / "CloudEventsJava.java"


@pytest.mark.parametrize("mode", ["binary", "binary_json", "structured"])
def test_mode(topic: Topic, program: Path, answers: Answers, mode: str) -> None:
    given = answers.of_all_engines()
    _send(topic, program, as_lines(given), mode)
    topic.must_give(answers.numbers(), messages=len(given))


def test_streams_that_are_labelled_json(topic: Topic, program: Path, answers: Answers) -> None:
    """The SDK pastes them into the structured event as they are: the value is not JSON."""
    given = answers.of_all_engines()
    _send(topic, program, as_lines(given), "structured_json")
    topic.must_give(answers.numbers(), messages=len(given))


def _send(topic: Topic, program: Path, lines: str, mode: str) -> None:
    subprocess.run(
        ["java", "-cp", f"{program / 'jars'}/*", _SENDER, topic.bootstrap, topic.name, mode],
        input=lines,
        encoding="utf-8",
        check=True,
    )
