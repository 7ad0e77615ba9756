"""What real software wrote to Kafka gives the numbers that the fake server had."""

import json

import msgspec
import pytest

from consumer.core.adapters.registry import load_adapters
from consumer.core.partition import Pipeline
from consumer.settings.core_options import pipeline_options
from consumer.settings.sources import load
from schemas import MessageOutcome
from tests.field.answers import Numbers, in_order
from tests.field.captures import FIELD_SAMPLES, Capture, captures
from tests.paths import ROOT


@pytest.mark.parametrize("capture", captures(), ids=lambda capture: capture.name)
def test_a_capture_gives_the_known_numbers(capture: Capture) -> None:
    settings = load(capture.settings, {}, None, require=())
    pipeline = Pipeline(pipeline_options(settings, "test"), load_adapters())
    partition = pipeline.partition("field", 0, 0)
    results = [partition.feed(message) for message in capture.messages()]
    partition.close_all()
    refused = [one.reason for one in results if one.outcome is MessageOutcome.BAD_PAYLOAD]
    assert refused == capture.dead_letters
    requests = partition.drain()
    records = [request.record for request in requests if request.record is not None]
    numbers = in_order(Numbers.of(json.loads(msgspec.json.encode(one))) for one in records)
    assert numbers == in_order(capture.records)
    assert len(requests) - len(records) == capture.without_record


def test_every_capture_has_a_row() -> None:
    files = {path.stem for path in FIELD_SAMPLES.glob("*.jsonl")}
    assert files == {capture.name for capture in captures()}


def test_the_readme_names_every_version() -> None:
    readme = (ROOT / "tests" / "field" / "README.md").read_text(encoding="utf-8")
    assert {one.version for one in captures() if one.version.split("-")[0] not in readme} == set()
    assert {one.date for one in captures() if one.date not in readme} == set()
