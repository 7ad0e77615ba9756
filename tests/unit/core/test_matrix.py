"""Every sample against every row of the table of formats, and against every adapter."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from consumer.commands.captures.files import read_capture
from consumer.core.adapters.registry import load_adapters
from consumer.core.bodies.json_text import raw_members
from consumer.core.envelopes.format_reader import FormatReader
from consumer.core.envelopes.formats import FORMATS
from consumer.core.envelopes.member_paths import EventMembers
from consumer.core.envelopes.native import NativeEnvelope
from schemas import BadPayloadReason
from tests.paths import SAMPLES
from tests.unit.core import samples
from tests.unit.core.adapters.parsed import sample
from tests.unit.core.made import body_reader

# Whose format the samples are, by the beginning of their names; no row claims any other sample.
ROW_OF: Final = {
    "field/engine_classes_sglang_logs_metrics_file": "sglang_metrics",
    "field/engine_classes_sglang_logs_request_log": "sglang_log",
    "field/engine_classes_vllm_vllm_batch": "openai_batch",
    "field/aiperf_raw_export": "aiperf",
    "field/envoy_tap_buffered": "envoy_tap",
    "field/envoy_tap_streaming": "envoy_tap_segments",
    "field/litellm_payloads": "litellm",
    "fleet/chunks/envoy_tap_buffered": "envoy_tap",
    "fleet/chunks/envoy_tap_segments": "envoy_tap_segments",
    "fleet/lines/apisix": "apisix",
    "fleet/lines/dynamo_audit": "dynamo_audit",
    "fleet/lines/dynamo_request_trace": "dynamo_trace",
    "fleet/lines/kong": "kong",
    "fleet/lines/kserve_blob": "kserve_blob",
    "fleet/lines/litellm": "litellm",
    "fleet/lines/sglang_log": "sglang_log",
    "fleet/otlp/dynamo_audit": "dynamo_audit",
    "fleet/records/seldon_v2": "v2_inference",
    "formats/akto": "akto",
    "formats/databricks": "databricks",
    "formats/dynamo_audit": "dynamo_audit",
    "formats/dynamo_trace": "dynamo_trace",
    "formats/envoy_tap/buffered": "envoy_tap",
    "formats/envoy_tap/streamed": "envoy_tap_segments",
    "formats/kong": "kong",
    "formats/kserve_blob": "kserve_blob",
    "formats/openai_batch": "openai_batch",
    "formats/otlp/logs.json": "dynamo_audit",  # One of its records holds such an event.
    "formats/sagemaker": "sagemaker",
    "formats/sglang_log": "sglang_log",
    "formats/sglang_metrics": "sglang_metrics",
    "formats/v2_inference/bytes": "v2_inference",
    "formats/v2_inference/triton_generate": "triton_generate",
    "reports/r31": "akto",
    "reports/r33": "litellm",
    "reports/r42": "triton_generate",
    "reports/r56": "access_log",
    "reports/s15": "litellm",
    "reports/s16": "litellm",
    "reports/s27": "aiperf",
}
READERS: Final = [
    FormatReader(form, body_reader(), NativeEnvelope(body_reader()), 1 << 24) for form in FORMATS
]


def values(name: str) -> Iterator[bytes]:
    found = (
        samples.messages(name)
        if name in samples.names()
        else read_capture(str(SAMPLES / name), "auto")
    )
    return (message.value() or b"" for message in found)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Return an iterator over all JSON objects in a value, in its texts and lines, too."""
    if isinstance(value, bytes):
        texts = {value, *(line[line.find(b"{") :] for line in value.splitlines() if b"{" in line)}
        for text in texts:
            try:
                yield from objects(json.loads(text))
            except (ValueError, RecursionError):
                continue
    elif isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        yield from objects(value.encode("utf-8", "replace"))
    elif isinstance(value, list):
        for entry in value:
            yield from objects(entry)
    elif isinstance(value, dict):
        yield value
        for member in value.values():
            yield from objects(member)


def claims(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the rows whose signature an entry has."""
    members = raw_members(json.dumps(entry).encode())
    assert not isinstance(members, BadPayloadReason | list)
    return tuple(one.form.name for one in READERS if one.matches(EventMembers(members)))


def names() -> list[str]:
    captures = [
        path.relative_to(SAMPLES).as_posix()
        for folder in ("reports", "field")
        for path in sorted(Path(SAMPLES / folder).glob("*.jsonl"))
    ]
    return [*samples.names(), *captures]


@pytest.mark.parametrize("name", names())
def test_exactly_the_right_row_claims_a_sample(name: str) -> None:
    claimed = {found for value in values(name) for one in objects(value) if (found := claims(one))}
    row = next((row for start, row in ROW_OF.items() if name.startswith(start)), None)
    assert claimed == ({(row,)} if row is not None else set())


def test_every_row_has_a_sample() -> None:
    assert {form.name for form in FORMATS} == set(ROW_OF.values())


ENGINE_SAMPLES: Final = sorted(
    path.relative_to(SAMPLES / "engines").as_posix()
    for path in (SAMPLES / "engines").rglob("*.*")
    if path.name != "index.json"
)
_SAME_AS: Final = {
    "dynamo/native_generate_sglang_meta_info_passthrough.json": "sglang",
    "tokenspeed/generate_nonstream_no_verify_steps.json": "sglang",  # There are no numbers in it.
}


@pytest.mark.parametrize("name", ENGINE_SAMPLES)
def test_no_adapter_claims_the_numbers_of_another_engine(name: str) -> None:
    response = sample(name)
    claimed = {one.engine for one in load_adapters() if one.can_adapt([response])}
    assert claimed <= {_SAME_AS.get(name, name.partition("/")[0])}
