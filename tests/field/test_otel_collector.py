"""The OpenTelemetry Collector, which follows a log file and sends it with its Kafka exporter."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.field.answers import Answers, write_log
from tests.field.conftest import Start, Topic

pytestmark = pytest.mark.field("otel-collector")

_AS_MAP = {"type": "json_parser", "parse_to": "body"}


@pytest.mark.parametrize("operators", [[], [_AS_MAP]], ids=["text", "map"])
@pytest.mark.parametrize("encoding", ["raw", "otlp_json", "otlp_proto"])
def test_bodies(
    topic: Topic,
    program: Path,
    answers: Answers,
    start: Start,
    tmp_path: Path,
    encoding: str,
    operators: list[dict[str, Any]],
) -> None:
    """Each encoding with the lines as they are, and parsed by the collector."""
    given = answers.of_all_engines()
    _ship(topic, program, start, tmp_path, encoding, operators, [one.line for one in given])
    # OTLP collects the lines that the collector read at once.
    messages = len(given) if encoding == "raw" else 1
    topic.must_give(answers.numbers(), messages=messages)


@pytest.mark.parametrize("encoding", ["raw", "otlp_json", "otlp_proto"])
def test_sse_log(
    topic: Topic, program: Path, answers: Answers, start: Start, tmp_path: Path, encoding: str
) -> None:
    """A log of raw streams; the collector sends no blank lines."""
    streams = [answers.give("vllm", streamed=True), answers.give("sglang", streamed=True)]
    lines = [line for one in streams for line in one.body.split("\n")[:-1]]
    _ship(topic, program, start, tmp_path, encoding, [], lines)
    messages = sum(map(bool, lines)) if encoding == "raw" else 1
    topic.must_give(answers.numbers(), messages=messages)


def _ship(
    topic: Topic,
    program: Path,
    start: Start,
    directory: Path,
    encoding: str,
    operators: list[dict[str, Any]],
    lines: list[str],
) -> None:
    log = write_log(directory / "answers.log", lines)
    logs = {"receivers": ["file_log"], "exporters": ["kafka"]}
    configuration = {
        "receivers": {
            "file_log": {"include": [str(log)], "start_at": "beginning", "operators": operators}
        },
        "exporters": {
            "kafka": {
                "brokers": [topic.bootstrap],
                "logs": {"topic": topic.name, "encoding": encoding},
            }
        },
        "service": {
            "pipelines": {"logs": logs},
            "telemetry": {"metrics": {"level": "none"}},
        },
    }
    path = directory / "collector.yaml"
    path.write_text(json.dumps(configuration))  # JSON is YAML.
    start(program / "program", "--config", path)
