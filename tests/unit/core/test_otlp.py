"""OTLP log records, as JSON and as Protobuf: bodies, attributes, and records of other kinds."""

import json
from base64 import b64encode
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from consumer.core.reassembly.limits import Limits
from consumer.core.response_event import BadEvent, Event, Opened
from schemas import BadPayloadReason, SkipReason
from tests.unit.core.made import (
    Json,
    chunk,
    encode,
    message,
    opened,
    outcomes_of,
    pipeline,
    short,
    sse,
    whole,
)

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def any_value(value: Any) -> Json:
    """Return an AnyValue in the JSON of OTLP."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case bytes():
            return {"bytesValue": b64encode(value).decode()}
        case list():
            return {"arrayValue": {"values": [any_value(entry) for entry in value]}}
        case dict():
            return {"kvlistValue": {"values": attributes(value)}}
    return {}


def attributes(members: Json) -> list[Json]:
    return [{"key": name, "value": any_value(value)} for name, value in members.items()]


def log(body: Any = None, stated: Json | None = None, **members: Any) -> Json:
    return {"body": any_value(body), "attributes": attributes(stated or {}), **members}


def as_json(*records: Json) -> bytes:
    return encode({"resourceLogs": [{"scopeLogs": [{"logRecords": list(records)}]}]})


def as_protobuf(*records: Json) -> bytes:
    """Return records as Protobuf; its own JSON writes ids in base64, unlike OTLP's."""
    written = [
        {
            name: b64encode(bytes.fromhex(value)).decode() if name.endswith("Id") else value
            for name, value in record.items()
        }
        for record in records
    ]
    value = {"resourceLogs": [{"scopeLogs": [{"logRecords": written}]}]}
    return ParseDict(value, LogsData()).SerializeToString()


def events(value: bytes, **options: Any) -> list[Opened]:
    found = opened(value, **options)
    return found if isinstance(found, list) else [found]


both = pytest.mark.parametrize("written", [as_json, as_protobuf])


@both
@pytest.mark.parametrize(
    "record",
    [
        log(encode(whole()).decode()),
        log(encode(whole())),
        log(whole()),
        log(sse(chunk(), "[DONE]").decode()),
        log({"request_id": "c1", "body": encode(whole()).decode(), "final": True}),
        log(None, {"payload": encode({"request_id": "c1", "body": whole()}).decode()}),
        log("a line of text", {"message": encode(whole()).decode()}),
    ],
)
def test_the_body_of_a_record_or_an_attribute_holds_the_event(written: Any, record: Json) -> None:
    [event] = events(written(record))
    assert isinstance(event, Event)
    assert event.request_id == "c1"


@both
def test_numbers_that_the_collector_parsed_as_doubles_are_counts(written: Any) -> None:
    body = whole()
    stats = body["metrics"]["speculative_decoding"]
    stats |= {name: float(stats[name]) for name in stats if name.startswith("num_")}
    assert [short(one) for one in outcomes_of([written(log(body))])] == ["published"]


@both
def test_each_record_is_an_event_of_its_own_and_other_records_are_skipped(written: Any) -> None:
    records = [log("started"), log(whole("a")), log({"level": "info"}), log(whole("b")), log()]
    found = events(written(*records))
    skipped = SkipReason.UNRELATED_EVENT
    assert [one.request_id if isinstance(one, Event) else one for one in found] == [
        skipped,
        "a",
        skipped,
        "b",
        skipped,
    ]


@both
def test_a_record_gives_its_time_and_span(written: Any) -> None:
    record = log(whole(), timeUnixNano="1767225600123000000", traceId=TRACE_ID, spanId=SPAN_ID)
    [event] = events(written(record | {"flags": 1}))
    assert isinstance(event, Event)
    assert event.time == 1_767_225_600_123
    assert event.context is not None
    assert event.context.traceparent == f"00-{TRACE_ID}-{SPAN_ID}-01"


@both
def test_a_record_without_a_time_of_its_own_has_that_of_the_collector(written: Any) -> None:
    times: Json = {"timeUnixNano": "0", "observedTimeUnixNano": "1767225600123000000"}
    [event] = events(written(log(whole(), **times)))
    assert isinstance(event, Event)
    assert event.time == 1_767_225_600_123


@both
def test_what_the_event_states_itself_counts(written: Any) -> None:
    inner = {"request_id": "r1", "body": encode(whole()).decode(), "timestamp": 1_767_225_601_000}
    [event] = events(written(log(inner, timeUnixNano="1767225600123000000")))
    assert isinstance(event, Event)
    assert event.time == 1_767_225_601_000


@both
def test_a_batch_above_the_cap_is_refused(written: Any) -> None:
    value = written(*[log(whole())] * 3)
    [refused] = events(value, limits=Limits(max_entries=2))
    assert isinstance(refused, BadEvent)
    assert refused.reason is BadPayloadReason.TOO_MANY_ENTRIES


def test_an_empty_batch_is_skipped() -> None:
    assert events(as_json()) == [SkipReason.EMPTY_BATCH]


@pytest.mark.parametrize(
    "value",
    [
        b"\n\x02\x08",
        b"\nplain text",
        as_protobuf(log(whole()))[:-1],
        ParseDict(
            {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "chat", "kind": 2}]}]}]},
            TracesData(),
        ).SerializeToString(),
    ],
)
def test_what_only_begins_like_protobuf_is_not_recognised(value: bytes) -> None:
    [refused] = events(value)
    assert isinstance(refused, BadEvent)


@pytest.mark.parametrize(
    "value",
    [
        {"resourceLogs": {}},
        {"resourceLogs": [1, {"scopeLogs": [None, {"logRecords": "x"}]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": 1, "attributes": [1]}]}]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"bytesValue": "!"}}]}]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "\ud800"}]}]}]},
    ],
)
def test_members_of_other_types_are_passed_over(value: Json) -> None:
    assert events(json.dumps(value).encode())[0] in (
        SkipReason.EMPTY_BATCH,
        SkipReason.UNRELATED_EVENT,
    )


def test_a_value_nested_too_deep_is_refused() -> None:
    nested = (b'{"arrayValue":{"values":[' + b" " * 40) * 3000 + b"]}}" * 3000
    head = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":'
    [refused] = events(head + nested + b"}]}]}]}")
    assert isinstance(refused, BadEvent)
    assert refused.reason is BadPayloadReason.TOO_DEEP


@both
def test_the_envelope_otlp_reads_nothing_else(written: Any) -> None:
    opener = pipeline(envelope="otlp").opener
    name, event = opener.open(message(written(log(whole()))))
    assert (name, isinstance(event, Event)) == ("body", True)
    _, refused = opener.open(message(encode(whole())))
    assert isinstance(refused, BadEvent)
