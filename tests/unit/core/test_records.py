"""What is published: the record's message, dead letters, and what none of them may hold."""

from base64 import b64decode
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from consumer.core import output_messages
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.dead_letters import digest, letter_of_message, letter_of_request
from consumer.core.message import Headers
from consumer.core.outcomes import RequestResult, decide_outcome
from consumer.core.output_messages import OutputMessage, output_of_letter, output_of_record
from consumer.core.reassembly.response import Response
from consumer.core.records import Origin
from consumer.core.response_event import RequestContext
from schemas import (
    SCHEMA_VERSION,
    BadPayloadReason,
    DeadLetter,
    IncompleteReason,
    MalformedReason,
    MessageOutcome,
    PublishedRecord,
    RequestOutcome,
    published,
)
from tests.unit.core.made import ADAPTERS, BEGIN_MS, TRACE, Json, encode, message, vllm_stats

ORIGIN = Origin("fleet-1", "responses", 7, {"cluster": "x"})
PLACE = "metrics.speculative_decoding"
LIMIT = 1_000_000
STEPS = {"per_step_accepted": [3] * 5 + [0] * 3, "per_step_drafted": [3] * 8}


def response(stats: Any = None, place: str = PLACE, **members: Any) -> Response:
    if stats is None:
        stats = vllm_stats()["speculative_decoding"]
    facts = ResponseFacts(
        response_id="c1",
        model="demo-8b",
        choices=1,
        stats={place: encode(stats)} if stats else None,
        streamed=True,
        ended=True,
    )
    known: Json = {
        "source": "",
        "request_id": "r1",
        "attempt": 0,
        "place": (40, 2),
        "last_offset": 45,
        "timestamp": BEGIN_MS,
        "started": BEGIN_MS + 1,
        "completed": BEGIN_MS + 9,
        "context": None,
        "facts": facts,
    }
    return Response(**{**known, **members})


def decided(stats: Any = None, place: str = PLACE, **members: Any) -> RequestResult:
    return decide_outcome(response(stats, place, **members), ADAPTERS, ORIGIN)


def output(limit: int = LIMIT, **members: Any) -> OutputMessage:
    result = decided(**members)
    assert result.record is not None
    return output_of_record(result.record, result.response, limit)


def record(of: OutputMessage) -> PublishedRecord:
    return msgspec.json.decode(of.value, type=PublishedRecord)


def header(of: OutputMessage, name: str) -> bytes | str | None:
    return dict(of.headers).get(name)


# The record


def test_every_field_of_a_record_says_where_it_comes_from() -> None:
    context = RequestContext("asked-for", "pod-1", "/v1/x", {"team": "a"}, TRACE)
    assert record(output(context=context)) == PublishedRecord(
        engine="vllm",
        mean_acceptance_length=2.875,
        draft_acceptance_rate=0.625,
        acceptance_histogram={0: 3, 3: 5},
        num_accepted_draft_tokens=15,
        num_draft_tokens=24,
        num_spec_steps=8,
        num_spec_tokens=3,
        fleet="fleet-1",
        request_id="r1",
        response_id="c1",
        attempt=0,
        model="asked-for",
        endpoint="/v1/x",
        instance="pod-1",
        labels={"team": "a", "cluster": "x"},
        prompt_tokens=None,
        finish_reason=None,
        streamed=True,
        stream_complete=True,
        incomplete_reason=None,
        started_at="2026-01-01T00:00:00.001Z",
        completed_at="2026-01-01T00:00:00.009Z",
        source_topic="responses",
        source_partition=7,
        source_first_offset=40,
        source_last_offset=45,
        source_index=2,
        record_id=f"fleet-1/responses/7/40/2/{BEGIN_MS}",
    )


@pytest.mark.parametrize(
    "unknown", [{}, {"context": None, "request_id": None, "started": None, "completed": None}]
)
def test_every_field_is_always_there_and_the_published_schema_agrees(unknown: Json) -> None:
    value = msgspec.json.decode(output(**unknown).value)
    assert set(value) == set(PublishedRecord.__struct_fields__)
    jsonschema.validate(value, published.schema("acceptance-record"))


def test_key_headers_and_timestamp_of_the_message() -> None:
    context = RequestContext(traceparent=TRACE)
    message_of = output(context=context)
    assert (message_of.output, message_of.key) == ("record", b"r1")
    assert message_of.timestamp == BEGIN_MS + 9
    assert dict(message_of.headers) == {
        "content-type": b"application/json",
        "schema-version": str(SCHEMA_VERSION).encode(),
        "ce_specversion": b"1.0",
        "ce_id": f"fleet-1/responses/7/40/2/{BEGIN_MS}".encode(),
        "ce_source": b"acceptance-consumer/fleet-1",
        "ce_type": b"acceptance-consumer.record",
        "ce_time": b"2026-01-01T00:00:00.009Z",
        "traceparent": TRACE.encode(),
    }


def test_what_is_unknown_is_left_out_of_the_message() -> None:
    message_of = output(request_id=None, completed=None)
    assert message_of.timestamp == 0
    assert header(message_of, "ce_time") is None
    assert header(message_of, "traceparent") is None


def test_without_a_request_id_the_key_is_the_record_id_so_that_a_compacted_topic_takes_it() -> None:
    message_of = output(request_id=None)
    assert message_of.key == record(message_of).record_id.encode()
    made = output_of_letter(letter(b"{"), LIMIT)
    assert made.key == letter(b"{").record_id.encode()


def test_a_recreated_topic_gives_another_id() -> None:
    first, second = (record(output(timestamp=stamp)).record_id for stamp in (BEGIN_MS, -1))
    assert first != second


# Too large


def test_a_record_that_is_too_large_gives_up_its_steps_and_says_so() -> None:
    steps = 20_000
    stats = {
        **vllm_stats(3 * steps, steps)["speculative_decoding"],
        "per_step_accepted": [3] * steps,
        "per_step_drafted": [3] * steps,
    }
    full = output(stats=stats)
    assert record(full).per_step_accepted is not None
    assert header(full, "left-out") is None
    small = output(10_000, stats=stats)
    assert len(small.value) < 10_000
    assert header(small, "left-out") == b"per_step_accepted, per_step_drafted"
    assert record(small) == replace(record(full), per_step_accepted=None, per_step_drafted=None)


def test_a_histogram_that_is_too_large_goes_as_well() -> None:
    """Refused by the broker, one record would stop the service."""
    stats = {"spec_verify_ct": 10_000, "spec_correct_drafts_histogram": [1] * 10_000}
    small = output(10_000, stats=stats, place="meta_info.spec*")
    assert header(small, "left-out") == b"per_step_accepted, per_step_drafted, acceptance_histogram"
    assert record(small).acceptance_histogram is None
    assert record(small).num_spec_steps == 10_000


@pytest.mark.parametrize("character", ["x", "ä", "🍏"])
def test_whatever_strangers_write_the_message_stays_small(character: str) -> None:
    long = character * 5_000
    context = RequestContext(long, long, long, {f"{long}{n}": long for n in range(100)}, TRACE)
    message_of = output(context=context, request_id=long)
    headers = sum(len(name) + len(value or b"") for name, value in message_of.headers)
    assert len(message_of.value) + len(message_of.key or b"") + headers < 100_000


def test_the_headers_and_the_key_count_against_the_limit() -> None:
    members: Json = {
        "request_id": "🍏" * 1024,
        "stats": vllm_stats()["speculative_decoding"] | STEPS,
    }
    full = output(**members)
    assert header(full, "left-out") is None
    assert header(output(len(full.value) + 2_000, **members), "left-out") is not None


@given(
    st.text(max_size=1100),
    st.text(max_size=300),
    st.text(max_size=1100),
    st.text(min_size=0, max_size=512),
    st.booleans(),
)
def test_the_short_way_past_the_limit_never_lets_a_message_through_that_is_too_large(
    request_id: str, fleet: str, endpoint: str, trace: str, named: bool
) -> None:
    context = RequestContext(endpoint=endpoint, traceparent=trace)
    origin = replace(ORIGIN, fleet=fleet)
    of = response(context=context, request_id=request_id if named else None)
    result = decide_outcome(of, ADAPTERS, origin)
    assert result.record is not None
    made = output_of_record(result.record, result.response, LIMIT)
    assert output_messages._size(made) <= 3 * len(made.value) + output_messages._MAX_AROUND_BYTES


# Labels


def test_a_label_that_holds_a_credential_by_its_name_is_masked() -> None:
    context = RequestContext(labels={"authorization": "Bearer x", "team": "a"})
    result = decide_outcome(response(context=context), ADAPTERS, ORIGIN)
    assert result.record is not None
    assert result.record.labels == {"authorization": "[masked]", "team": "a", "cluster": "x"}


def test_labels_of_the_settings_win_and_those_of_strangers_are_capped() -> None:
    labels = {"cluster": "forged", **{f"l{n}": "v" * 1000 for n in range(100)}}
    found = record(output(context=RequestContext(labels=labels))).labels
    assert found["cluster"] == "x"
    assert len(found) == 32
    assert max(map(len, found.values())) == 256


# Outcomes


@pytest.mark.parametrize(
    ("members", "outcome", "reason"),
    [
        ({}, RequestOutcome.PUBLISHED, None),
        ({"failed": True}, RequestOutcome.FAILED_RESPONSE, None),
        ({"incomplete": IncompleteReason.GAP}, RequestOutcome.PUBLISHED, None),
        ({"stats": {}}, RequestOutcome.NO_STATS, "stream_without_usage_chunk"),
        (
            {"stats": {}, "incomplete": IncompleteReason.GAP},
            RequestOutcome.INCOMPLETE,
            "gap",
        ),
        (
            {
                "stats": {"spec_verify_ct": 0},
                "place": "meta_info.spec*",
                "incomplete": IncompleteReason.TRUNCATED,
            },
            RequestOutcome.INCOMPLETE,
            "truncated",
        ),
        ({"stats": {}, "finish": "abort"}, RequestOutcome.NO_STATS, "aborted"),
        (
            {"stats": {"spec_verify_ct": 0}, "place": "meta_info.spec*", "finish": "abort"},
            RequestOutcome.NO_STATS,
            "aborted",
        ),
        ({"stats": {"other": 1}}, RequestOutcome.UNRECOGNISED_STATS, None),
        ({"stats": {**vllm_stats()["speculative_decoding"], "num_spec_steps": 7}}, None, None),
    ],
)
def test_the_outcome_of_a_response(
    members: Json, outcome: RequestOutcome | None, reason: str | None
) -> None:
    known = dict(members)
    place = known.pop("place", PLACE)
    stats, finish = known.pop("stats", None), known.pop("finish", None)
    made = response(stats, place, **known) if stats != {} else without_stats(**known)
    if made.facts is not None:
        made.facts.finish_reason = finish
    result = decide_outcome(made, ADAPTERS, ORIGIN)
    assert result.outcome is (outcome or RequestOutcome.MALFORMED_STATS)
    assert outcome is None or result.reason == reason
    assert (result.record is None) == (outcome is not RequestOutcome.PUBLISHED)


def without_stats(**members: Any) -> Response:
    made = response(**members)
    made.facts = ResponseFacts(streamed=True)
    return made


def test_statistics_above_the_cap_are_malformed_by_that_reason() -> None:
    made = response()
    made.facts = ResponseFacts(stats={PLACE: b""})
    result = decide_outcome(made, ADAPTERS, ORIGIN)
    assert (result.outcome, result.reason) == (
        RequestOutcome.MALFORMED_STATS,
        MalformedReason.TOO_LARGE,
    )
    assert letter_of_request(result, ORIGIN).stats == {PLACE: None}


# Dead letters of messages


def letter(
    value: bytes | None,
    headers: Headers | None = None,
    key: bytes | None = None,
    *,
    reference: bool = False,
) -> DeadLetter:
    return letter_of_message(
        message(value, 12, headers=headers, key=key),
        MessageOutcome.BAD_PAYLOAD,
        BadPayloadReason.INVALID_JSON,
        "cut off",
        ORIGIN,
        headers or [],
        reference=reference,
    )


def sent(of: DeadLetter, limit: int = LIMIT) -> Json:
    value: Json = msgspec.json.decode(output_of_letter(of, limit).value)
    assert set(value) == set(DeadLetter.__struct_fields__)
    jsonschema.validate(value, published.schema("dead-letter"))
    return value


def test_a_letter_holds_the_message_and_where_it_stood() -> None:
    found = sent(letter(b"\xff{", [("a", b"\x00"), ("b", None), ("c", "ä")], b"k"))
    assert found["kind"] == "message"
    assert (found["outcome"], found["reason"]) == ("bad_payload", "invalid_json")
    assert (found["source_first_offset"], found["source_last_offset"]) == (12, 12)
    assert found["source_timestamp"] == BEGIN_MS
    assert (found["size"], found["digest"]) == (2, digest(b"\xff{"))
    assert b64decode(found["value_base64"]) == b"\xff{"
    assert b64decode(found["key_base64"]) == b"k"
    assert found["headers"] == [["a", "AA=="], ["b", None], ["c", "w6Q="]]
    assert not found["truncated"]


def test_a_reference_leaves_the_payload_out() -> None:
    found = sent(letter(b"{", reference=True))
    assert found["value_base64"] is None
    assert found["truncated"]
    assert found["digest"] == digest(b"{")


@given(st.binary(min_size=3, max_size=300), st.none() | st.binary(max_size=10))
def test_a_letter_that_is_too_large_becomes_a_reference(value: bytes, key: bytes | None) -> None:
    headers: Headers = [("Authorization", b"x"), ("b", value)]
    full, short = letter(value, headers, key), letter(value, headers, key, reference=True)
    limit = output_messages._size(output_of_letter(full, LIMIT)) - 1
    assert output_of_letter(full, limit) == output_of_letter(short, LIMIT)


def test_the_message_of_a_letter_can_be_filtered_by_its_headers() -> None:
    made = output_of_letter(letter(b"{"), LIMIT)
    assert made.output == "dead_letter"
    assert header(made, "kind") == b"message"
    assert header(made, "outcome") == b"bad_payload"
    assert header(made, "reason") == b"invalid_json"


@pytest.mark.parametrize(
    "name",
    ["Authorization", "X-Api-Key", "api_key", "Cookie", "x-auth-token", "Secret", "x-signature"],
)
def test_credentials_in_headers_are_masked(name: str) -> None:
    found = sent(letter(b"{", [(name, b"canary")]))
    assert b64decode(found["headers"][0][1]) == b"***"


@pytest.mark.parametrize(
    "value",
    [
        b'{"authorization":"canary"}',
        b'{"Authorization" : "canary"}',
        b'{"x-api-key":"canary"}',
        b'{"apiKey":"canary"}',
        b'{"client_secret":"canary"}',
        b'{"access_token":"canary"}',
        b'{"password":"canary"}',
        b'{"value":"{\\"authorization\\":\\"canary\\"}"}',
        b'{"value":"{\\"v\\":\\"{\\\\\\"authorization\\\\\\":1}\\"}"}',
    ],
)
def test_a_value_that_holds_credentials_is_only_referenced(value: bytes) -> None:
    """Some gateways log the authorization of their clients, even as JSON inside JSON."""
    found = sent(letter(value))
    assert found["value_base64"] is None
    assert found["truncated"]


@pytest.mark.parametrize("value", [b'{"prompt_tokens":1}', b'{"token":"x"}', b'"secret"'])
def test_other_values_are_kept(value: bytes) -> None:
    assert sent(letter(value))["value_base64"] is not None


def test_a_large_value_is_cut_and_a_letter_always_fits() -> None:
    found = sent(letter(b"x" * 2_000_000))
    assert found["truncated"]
    assert len(b64decode(found["value_base64"])) == 512 * 1024
    assert found["size"] == 2_000_000
    headers: Headers = [(f"{n}" + "n" * 10_000, b"v" * 10_000) for n in range(100)]
    for limit in (1_000_000, 100_000, 5_000):
        made = output_of_letter(letter(b"x" * 2_000_000, headers), limit)
        assert len(made.value) < limit


def test_a_tombstone_and_headers_of_any_kind_make_a_letter() -> None:
    sent(letter(None, [("", b""), ("\ud800".encode("utf-8", "replace").decode(), "\ud800")]))


# Dead letters of requests


def request_of(stats: Any) -> DeadLetter:
    return letter_of_request(decided(stats), ORIGIN)


def test_a_letter_of_a_request_holds_its_numbers_and_none_of_its_text() -> None:
    found = sent(request_of({"a": 1, "b": "canary", "c": [1.5, True, None, "canary", {"d": -1}]}))
    assert found["kind"] == "request"
    assert found["outcome"] == "unrecognised_stats"
    assert found["stats"] == {PLACE: {"a": 1, "b": None, "c": [1.5, True, None, None, {"d": -1}]}}
    assert (found["request_id"], found["response_id"], found["model"]) == ("r1", "c1", "demo-8b")
    assert found["record_id"] == f"fleet-1/responses/7/40/2/{BEGIN_MS}"
    assert found["value_base64"] is found["headers"] is None


def test_numbers_that_no_reader_could_decode_are_left_out() -> None:
    made = response()
    raw = b'{"a":' + b"9" * 100 + b',"b":18446744073709551616,"c":5}'
    made.facts = ResponseFacts(stats={PLACE: raw, "x": b"not json", "y": b"[" * 100_000})
    found = sent(letter_of_request(decide_outcome(made, ADAPTERS, ORIGIN), ORIGIN))
    assert found["stats"] == {PLACE: {"a": None, "b": None, "c": 5}, "x": None, "y": None}


def test_statistics_without_end_are_cut() -> None:
    for stats in ({"n": [[1] * 100] * 1000}, {f"name_{number}": 1 for number in range(60_000)}):
        found = request_of(stats)
        assert len(encode(found.stats)) < 20_000
        assert output_of_letter(found, 2_000).value.find(b'"stats":null') > 0


def test_names_of_statistics_that_may_be_text_are_left_out() -> None:
    found = request_of({"canary of a prompt": 1, "n" * 65: 2, "3": 4, "spec-accept.rate": 0.5})
    assert found.stats == {PLACE: {"3": 4, "spec-accept.rate": 0.5}}


def test_two_claims_are_named() -> None:
    made = response()
    made.facts = ResponseFacts(
        stats={
            PLACE: encode(vllm_stats()["speculative_decoding"]),
            "meta_info.spec*": b'{"spec_verify_ct":8}',
        }
    )
    found = letter_of_request(decide_outcome(made, ADAPTERS, ORIGIN), ORIGIN)
    assert found.outcome == "ambiguous_stats"
    assert found.detail == "claimed by sglang, vllm"
