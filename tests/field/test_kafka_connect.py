"""Kafka Connect's FileStreamSource with two converters, and MirrorMaker 2."""

from pathlib import Path

import pytest

from tests.field.answers import Answers, write_log
from tests.field.conftest import Start, Topic

pytestmark = pytest.mark.field("kafka-connect")

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_CONVERTERS = {
    "string": {"value.converter": "org.apache.kafka.connect.storage.StringConverter"},
    "json_with_schemas": {"value.converter": _JSON},
    "json_without_schemas": {"value.converter": _JSON, "value.converter.schemas.enable": "false"},
}


@pytest.mark.parametrize("converter", _CONVERTERS)
def test_bodies(
    topic: Topic, program: Path, answers: Answers, start: Start, tmp_path: Path, converter: str
) -> None:
    """A log with a response per line; streams are in it as native events."""
    given = answers.of_all_engines()
    _connect(topic, program, start, tmp_path, converter, [one.line for one in given])
    topic.must_give(answers.numbers(), messages=len(given))


@pytest.mark.parametrize("converter", ["string", "json_with_schemas"])
def test_sse_log(
    topic: Topic, program: Path, answers: Answers, start: Start, tmp_path: Path, converter: str
) -> None:
    """A log of raw streams: each of their lines, blank ones too, is a message."""
    streams = [answers.give("vllm", streamed=True), answers.give("sglang", streamed=True)]
    lines = [line for one in streams for line in one.body.split("\n")[:-1]]
    _connect(topic, program, start, tmp_path, converter, lines)
    topic.must_give(answers.numbers(), messages=len(lines))


def test_mirror_maker(
    topic: Topic, program: Path, answers: Answers, start: Start, tmp_path: Path
) -> None:
    """It copies key, headers and bytes to a topic with the cluster's name before it."""
    given = answers.of_all_engines()
    bench, source = topic.bench, topic.name
    bench.input = f"source.{source}"
    bench.kafka.create_topic(bench.input, 1)
    headers = [("ce_specversion", "1.0"), ("ce_source", "/gateway")]
    for one in given:
        event = [("ce_id", one.id), ("ce_type", "org.kubeflow.serving.inference.response")]
        bench.send(one.body.encode(), one.id, headers=[*headers, *event], topic=source)
    bench.flush()
    properties = {
        "clusters": "source, target",
        "source.bootstrap.servers": topic.bootstrap,
        "target.bootstrap.servers": topic.bootstrap,
        "source->target.enabled": "true",
        "source->target.topics": source,
        "source->target.emit.heartbeats.enabled": "false",
        "source->target.emit.checkpoints.enabled": "false",
        "target->source.enabled": "false",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
    }
    file = _properties(tmp_path / "mirror.properties", properties)
    start(*_java(program), "org.apache.kafka.connect.mirror.MirrorMaker", file)
    topic.must_give(answers.numbers(), messages=len(given))


def _connect(
    topic: Topic, program: Path, start: Start, tmp_path: Path, converter: str, lines: list[str]
) -> None:
    log = write_log(tmp_path / "answers.log", lines)
    worker = {
        "bootstrap.servers": topic.bootstrap,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.storage.file.filename": str(tmp_path / "offsets"),
        "plugin.discovery": "only_scan",
        "listeners": "http://127.0.0.1:0",
        **_CONVERTERS[converter],
    }
    connector = {
        "name": "answers",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(log),
        "topic": topic.name,
    }
    start(
        *_java(program),
        "-Dfile.encoding=UTF-8",
        "org.apache.kafka.connect.cli.ConnectStandalone",
        _properties(tmp_path / "worker.properties", worker),
        _properties(tmp_path / "connector.properties", connector),
    )


def _java(program: Path) -> list[str]:
    return ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{program / 'jars'}/*"]


def _properties(path: Path, properties: dict[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path
