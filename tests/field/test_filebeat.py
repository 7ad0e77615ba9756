"""Filebeat, which follows a log file and sends its lines to Kafka."""

import json
from pathlib import Path

import pytest

from tests.field.answers import Answers, write_log
from tests.field.conftest import Start, Topic

pytestmark = pytest.mark.field("filebeat")

_CODECS = {"json": {"json": {"pretty": False}}, "line": {"format": {"string": "%{[message]}"}}}


@pytest.mark.parametrize("codec", _CODECS)
def test_bodies(
    topic: Topic, program: Path, answers: Answers, start: Start, tmp_path: Path, codec: str
) -> None:
    given = answers.of_all_engines()
    _ship(topic, program, start, tmp_path, codec, [one.line for one in given])
    topic.must_give(answers.numbers(), messages=len(given))


@pytest.mark.parametrize("codec", _CODECS)
def test_sse_log(
    topic: Topic, program: Path, answers: Answers, start: Start, tmp_path: Path, codec: str
) -> None:
    """A log of raw streams; Filebeat sends no blank lines."""
    streams = [answers.give("vllm", streamed=True), answers.give("sglang", streamed=True)]
    lines = [line for one in streams for line in one.body.split("\n")[:-1]]
    _ship(topic, program, start, tmp_path, codec, lines)
    topic.must_give(answers.numbers(), messages=sum(map(bool, lines)))


def _ship(
    topic: Topic, program: Path, start: Start, directory: Path, codec: str, lines: list[str]
) -> None:
    log = write_log(directory / "answers.log", lines)
    configuration = {
        "filebeat.inputs": [{"type": "filestream", "id": "answers", "paths": [str(log)]}],
        "output.kafka": {
            "hosts": [topic.bootstrap],
            "topic": topic.name,
            "version": "2.1.0",
            "codec": _CODECS[codec],
        },
        "processors": [],
        "name": "host",
    }
    path = directory / "filebeat.yml"
    path.write_text(json.dumps(configuration))  # JSON is YAML.
    path.chmod(0o600)
    data = ["--path.data", str(directory / "data"), "--path.home", str(directory)]
    start(program / "program", "-e", "-c", path, *data)
