"""Rows of the table of formats: what a row can say, and the rows that are there."""

from base64 import b64encode
from typing import Any

import pytest

from consumer.core.bodies.json_text import raw_members
from consumer.core.envelopes.format_reader import FormatReader
from consumer.core.envelopes.formats import ENVELOPES, FORMATS, Format, Skip, format_names
from consumer.core.envelopes.joiners import aiperf_body, sglang_body
from consumer.core.envelopes.member_paths import EventMembers, parse_path
from consumer.core.envelopes.native import NativeEnvelope
from consumer.core.response_event import BadEvent, Event, Opened
from consumer.settings.sources import load
from schemas import BadPayloadReason, SkipReason
from tests.unit.core.made import Json, body_reader, encode, opened, sse, whole


def read(event: Json, **row: Any) -> Opened:
    """Return the event that a row with a body in `out` makes of an entry."""
    form = Format(
        **{"name": "own", "title": "", "signature": {"out": "any"}, "body": ("out",)} | row
    )
    reader = FormatReader(form, body_reader(), NativeEnvelope(body_reader()), 1 << 20)
    text = encode(event)
    members = raw_members(text)
    assert isinstance(members, dict)
    [found] = reader.open(EventMembers(members), text, 10)
    return found


def request_id(event: Opened) -> str | None:
    assert isinstance(event, Event)
    return event.request_id


# What a row can say


@pytest.mark.parametrize(
    ("skip", "kinds"),
    [
        (
            Skip(path="kind", values=("req", "7", "true"), reason=SkipReason.REQUEST_EVENT),
            (7, "req", True),
        ),
        (Skip(path="kind", reason=SkipReason.REQUEST_EVENT), ("any", 0, {})),
        (Skip(path="other | kind", reason=SkipReason.REQUEST_EVENT), ("any",)),
    ],
)
def test_entries_are_skipped_by_a_member(skip: Skip, kinds: tuple[Any, ...]) -> None:
    for kind in kinds:
        assert read({"out": whole(), "kind": kind}, skips=(skip,)) is SkipReason.REQUEST_EVENT
    assert request_id(read({"out": whole(), "kind": None}, skips=(skip,))) == "c1"


def test_entries_are_skipped_without_a_member() -> None:
    skips = (Skip(path="kind", absent=True, reason=SkipReason.UNRELATED_EVENT),)
    assert read({"out": whole()}, skips=skips) is SkipReason.UNRELATED_EVENT
    assert request_id(read({"out": whole(), "kind": 1}, skips=skips)) == "c1"


@pytest.mark.parametrize("body", ["plain text", {"pages": 7}, 30.4])
def test_another_body_is_skipped_only_where_the_source_logs_others(body: Any) -> None:
    others = SkipReason.UNRELATED_BODY
    assert read({"out": body}, others=others) is others
    refused = read({"out": body})
    assert isinstance(refused, BadEvent)


def test_a_damaged_base64_body_is_refused_also_where_others_are_skipped() -> None:
    row = {"body": (), "body_base64": ("out",), "others": SkipReason.UNRELATED_BODY}
    refused = read({"out": "!"}, **row)
    assert isinstance(refused, BadEvent)
    assert refused.reason is BadPayloadReason.INVALID_BASE64


def test_the_body_can_be_put_together() -> None:
    def joined(pieces: bytes) -> bytes:
        return b"".join(bytes.fromhex(text) for text in pieces.decode()[2:-2].split('","'))

    pieces = [part.encode().hex() for part in encode(whole()).decode()]
    assert request_id(read({"out": pieces}, join=joined)) == "c1"


def test_a_name_in_an_array_selects_the_value_of_the_entry_that_it_names() -> None:
    headers = [{"key": "a", "value": "1"}, {"name": "X-Id", "value": "r7"}, 3, {"value": "2"}]
    assert request_id(read({"out": whole(), "h": headers}, request_id=("h.X-Id",))) == "r7"
    assert request_id(read({"out": whole(), "h": headers}, request_id=("h.b", "h.a"))) == "1"
    assert request_id(read({"out": whole(), "h": headers}, request_id=("h.c",))) == "c1"


# The bodies that are put together


def test_the_texts_and_server_sent_events_of_aiperf_are_one_body() -> None:
    packets = [
        {"name": "comment", "value": "ping"},
        {"name": "event", "value": "x"},
        {"name": "data", "value": "{}"},
        {"name": "data"},
    ]
    responses = [{"packets": packets}, {"packets": [{"name": "data", "value": "[DONE]"}]}]
    body = aiperf_body(encode({"responses": responses}))
    assert body == b": ping\nevent: x\ndata: {}\ndata\n\ndata: [DONE]\n\n"
    assert aiperf_body(encode({"responses": [{"text": '{"a":1}'}]})) == b'{"a":1}'


def test_a_request_of_aiperf_without_responses_failed_with_its_error() -> None:
    record = {"responses": [], "error": {"code": 500, "message": "no"}}
    assert aiperf_body(encode(record)) == b'{"error":{"code":500,"message":"no"}}'


@pytest.mark.parametrize("responses", [[], {}, [1], [{"packets": 7}], [{"packets": [1]}], [{}]])
def test_other_responses_of_aiperf_are_an_empty_body(responses: Any) -> None:
    assert aiperf_body(encode({"responses": responses})).strip() == b""


def test_a_metrics_export_is_the_meta_info_of_a_response() -> None:
    assert sglang_body(b'{"id":"r"}') == b'{"meta_info":{"id":"r"}}'


# The rows that are there


def test_a_name_is_that_of_one_format() -> None:
    assert len(set(format_names())) == len(ENVELOPES) + len(FORMATS)


@pytest.mark.parametrize("form", [*ENVELOPES, *FORMATS], ids=lambda form: form.name)
def test_a_row_says_what_it_is_and_may_be_the_only_one_to_read(form: Format) -> None:
    assert all((form.title, form.switch_on, form.survives, form.tried_on or form.documents))
    assert load({"envelope": form.name}, {}, None, require=()).envelope == form.name


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_row_has_a_body_and_a_signature_that_needs_a_member(form: Format) -> None:
    assert form.body or form.body_base64 or form.join
    assert "null" not in next(iter(form.signature.values()))
    assert all(parse_path(path) for paths in form.signature for path in paths.split(" | "))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"databricks_request_id": "d", "response": encode(whole()).decode()}, "d"),
        (
            {
                "akto_vxlan_id": "0",
                "responsePayload": encode({"body": sse(whole()).decode()}).decode(),
                "requestHeaders": '{"x-request-id": "r"}',
            },
            "r",
        ),
        (
            {
                "captureData": {
                    "endpointOutput": {
                        "data": b64encode(encode(whole())).decode(),
                        "encoding": "BASE64",
                    }
                },
                "eventMetadata": {"eventId": "e"},
            },
            "e",
        ),
        ({"custom_id": "x", "response": {"body": whole()}, "error": None, "id": "b"}, "b"),
    ],
)
def test_the_id_of_an_entry_counts_before_that_of_the_body(event: Json, expected: str) -> None:
    found = opened(encode(event))
    assert not isinstance(found, list)
    assert request_id(found) == expected


def test_a_failed_call_of_litellm_is_a_failed_response() -> None:
    call = {
        "call_type": "acompletion",
        "litellm_call_id": "l1",
        "startTime": 1_767_225_600.1,
        "endTime": 1_767_225_600.2,
        "response": None,
        "error_information": {"error_code": "429"},
    }
    event = opened(encode(call))
    assert isinstance(event, Event)
    assert (event.failed, event.time) == (True, 1_767_225_600_200)
