"""The contracts: what is published about them, and what they promise to subscribers."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from schemas import DeadLetter, PublishedRecord, ResponseEvent, published
from tests.paths import ROOT

RECORD = PublishedRecord(
    engine="vllm",
    acceptance_histogram={0: 8, 2: 6, 10: 6},
    per_step_accepted=[0, 1],
    fleet="f",
    request_id="r",
    response_id=None,
    attempt=0,
    model=None,
    endpoint=None,
    instance=None,
    labels={"a": "b"},
    prompt_tokens=None,
    finish_reason=None,
    streamed=True,
    stream_complete=True,
    incomplete_reason=None,
    started_at=None,
    completed_at="2026-01-01T00:00:00.000Z",
    source_topic="t",
    source_partition=0,
    source_first_offset=1,
    source_last_offset=2,
    source_index=0,
    record_id="f/t/0/1/0/-1",
)
LETTER = DeadLetter(
    kind="message",
    outcome="bad_payload",
    reason="invalid_json",
    detail=None,
    fleet="f",
    source_topic="t",
    source_partition=0,
    source_first_offset=1,
    source_last_offset=1,
    source_index=None,
    source_timestamp=None,
    request_id=None,
    response_id=None,
    model=None,
    record_id="f/t/0/1/0/-1",
    size=1,
    digest="00",
    truncated=False,
    key_base64=None,
    value_base64="AA==",
    headers=[("a", None), ("b", "AA==")],
    stats=None,
)
WRITTEN = {"acceptance-record": RECORD, "dead-letter": LETTER}


def as_json(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


def valid(name: str, value: Any) -> bool:
    return bool(Draft202012Validator(published.schema(name)).is_valid(value))


def examples(name: str) -> Iterator[Any]:
    readme = (ROOT / "schemas" / "README.md").read_text()
    for block in re.findall(rf"```json {name}\n(.*?)```", readme, re.DOTALL):
        yield json.loads(block)


class TestJsonSchemas:
    @pytest.mark.parametrize("name", published.names())
    def test_the_committed_file_is_current(self, name: str) -> None:
        assert published.path(name).read_text() == published.text(name), (
            "run python -m tests.documents.generate"
        )

    @pytest.mark.parametrize("name", published.names())
    def test_it_is_a_schema_with_an_identity(self, name: str) -> None:
        schema = published.schema(name)
        Draft202012Validator.check_schema(schema)
        assert schema["$id"] == published.identifier(name)
        assert schema["title"]
        assert schema["description"]
        assert all(member["description"] for member in schema["properties"].values())

    def test_there_are_no_files_of_other_schemas(self) -> None:
        files = set((ROOT / "schemas" / "json").iterdir())
        assert files == {published.path(name) for name in published.names()}

    @pytest.mark.parametrize("name", WRITTEN)
    def test_what_we_write_is_valid_and_every_field_of_it_is_required(self, name: str) -> None:
        written = as_json(WRITTEN[name])
        assert valid(name, written)
        assert published.schema(name)["required"] == list(written)
        for member in written:
            assert not valid(name, {key: written[key] for key in written if key != member})

    @pytest.mark.parametrize("name", published.names())
    def test_members_that_it_does_not_know_are_allowed(self, name: str) -> None:
        value = {"request_id": "r", "body": "[DONE]"} | as_json(WRITTEN.get(name, {}))
        assert valid(name, value | {"new": 1})

    @pytest.mark.parametrize(
        ("histogram", "fits"),
        [
            ({}, True),
            (None, True),
            ({"0": 1, "12": 3}, True),
            ({"-1": 1}, False),
            ({"1.0": 1}, False),
            ({"": 1}, False),
            ({"one": 1}, False),
            ({"1": -1}, False),
            ({"1": "1"}, False),
            ([1, 2], False),
        ],
    )
    def test_histogram_keys_are_integers_to_any_validator(
        self, histogram: object, *, fits: bool
    ) -> None:
        record = as_json(RECORD) | {"acceptance_histogram": histogram}
        assert valid("acceptance-record", record) is fits

    @pytest.mark.parametrize(
        ("members", "fits"),
        [
            ({"body": {}}, True),
            ({"body": [{}]}, True),
            ({"body": "[DONE]"}, True),
            ({"body_base64": "AA=="}, True),
            ({"body": {}, "body_base64": None}, True),
            ({"final": True}, True),
            ({"status": 503}, True),
            ({}, False),
            ({"body": None}, False),
            ({"final": False}, False),
            ({"status": 200}, False),
            ({"body": {}, "body_base64": "AA=="}, False),
            ({"body": 5}, False),
            ({"body": {}, "sequence": -1}, False),
            ({"body": {}, "attempt": 0.5}, False),
        ],
    )
    def test_an_event_has_one_body_or_says_that_there_is_none(
        self, members: dict[str, object], *, fits: bool
    ) -> None:
        assert valid("response-event", {"request_id": "r", **members}) is fits


class TestEvolution:
    @pytest.mark.parametrize("name", WRITTEN)
    def test_a_reader_of_today_reads_a_message_with_more_fields(self, name: str) -> None:
        written = WRITTEN[name]
        message = msgspec.json.encode(as_json(written) | {"new": {"a": [1]}})
        assert msgspec.json.decode(message, type=type(written)) == written

    def test_a_record_is_the_same_after_writing_and_reading(self) -> None:
        read = msgspec.json.decode(msgspec.json.encode(RECORD), type=PublishedRecord)
        assert read == RECORD
        assert read.acceptance_histogram == {0: 8, 2: 6, 10: 6}

    def test_null_is_written_and_not_left_out(self) -> None:
        assert as_json(RECORD)["model"] is None
        assert as_json(LETTER)["stats"] is None

    def test_every_member_of_a_response_event_but_the_request_id_is_optional(self) -> None:
        required = [f.name for f in msgspec.structs.fields(ResponseEvent) if f.required]
        assert required == ["request_id"]
        event = msgspec.json.decode(b'{"request_id":"r"}', type=ResponseEvent)
        values = msgspec.structs.asdict(event).values()
        assert list(values) == ["r", *[None] * (len(values) - 1)]

    def test_members_of_a_response_event_that_are_not_known_are_ignored(self) -> None:
        message = b'{"request_id":"r","new":{"a":[1]},"body":"[DONE]"}'
        event = msgspec.json.decode(message, type=ResponseEvent)
        assert event == ResponseEvent(request_id="r", body="[DONE]")

    @pytest.mark.parametrize("name", published.names())
    def test_the_fields_of_version_1_stay(self, name: str) -> None:
        # Add to this list what is new; taking something away breaks subscribers.
        assert set(VERSION_1[name].split()) <= published.schema(name)["properties"].keys()


class TestReadme:
    def test_the_record_of_the_readme_is_one(self) -> None:
        (record,) = examples("record")
        assert valid("acceptance-record", record)
        assert as_json(msgspec.convert(record, PublishedRecord, str_keys=True)) == record

    def test_the_events_of_the_readme_are_such(self) -> None:
        events = list(examples("response-event"))
        assert len(events) == 9
        for event in events:
            assert valid("response-event", event), event
            assert as_json(msgspec.convert(event, ResponseEvent)) == event


def test_the_contracts_import_with_msgspec_and_the_standard_library_only(tmp_path: Path) -> None:
    # Isolated and without site-packages: of what is installed, the process sees msgspec alone.
    (tmp_path / "schemas").symlink_to(ROOT / "schemas")
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import importlib, pkgutil, schemas
modules = [m.name for m in pkgutil.walk_packages(schemas.__path__, "schemas.")]
for name in modules:
    importlib.import_module(name)
for name in importlib.import_module("schemas.published").names():
    importlib.import_module("schemas.published").text(name)
print(len(modules))
print(*({{m.partition(".")[0] for m in sys.modules}} - sys.stdlib_module_names - {{"__main__"}}))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    count, loaded = done.stdout.splitlines()
    assert int(count) >= 6
    assert set(loaded.split()) <= {"schemas", "msgspec"}


VERSION_1 = {
    "acceptance-record": (
        "engine mean_acceptance_length draft_acceptance_rate acceptance_histogram "
        "num_accepted_draft_tokens num_draft_tokens num_spec_steps num_spec_tokens "
        "completion_tokens per_step_accepted per_step_drafted draft_tokens_measured fleet "
        "request_id response_id attempt model endpoint instance labels prompt_tokens finish_reason "
        "streamed stream_complete incomplete_reason started_at completed_at source_topic "
        "source_partition source_first_offset source_last_offset source_index record_id "
        "schema_version"
    ),
    "dead-letter": (
        "kind outcome reason detail fleet source_topic source_partition source_first_offset "
        "source_last_offset source_index source_timestamp request_id response_id model record_id "
        "size digest truncated key_base64 value_base64 headers stats schema_version"
    ),
    "response-event": (
        "request_id body body_base64 sequence final timestamp attempt engine model instance "
        "endpoint status labels"
    ),
}
