"""CloudEvents over Kafka: modes, batches, KServe's habits, and what breaks the rules."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.core.envelopes.cloudevents import is_structured
from consumer.core.message import Headers
from consumer.core.response_event import BadEvent, Event, EventKind, Opened
from schemas import BadPayloadReason, IncompleteReason, SkipReason
from tests.unit.core.made import (
    BEGIN_MS,
    TRACE,
    Json,
    chunk,
    cloudevent,
    cloudevent_headers,
    encode,
    last_chunk,
    message,
    pipeline,
    sse,
    whole,
)

OPENER = pipeline(label_attributes=("namespace",)).opener
LABEL: Headers = [("content-type", b"application/cloudevents+json")]
STREAM = sse(chunk(), last_chunk(), "[DONE]")


def opened(headers: Headers, value: bytes) -> Opened | list[Opened]:
    return OPENER.open(message(value, headers=headers))[1]


def binary(value: bytes = STREAM, **attributes: str) -> Opened | list[Opened]:
    return opened(cloudevent_headers(**attributes), value)


def structured(*, labelled: bool = True, **members: Any) -> Opened | list[Opened]:
    return opened(LABEL if labelled else [], encode(cloudevent(**members)))


def event(found: Opened | list[Opened]) -> Event:
    assert isinstance(found, Event), found
    assert found.kind is EventKind.WHOLE
    return found


def bad(found: Opened | list[Opened]) -> BadPayloadReason:
    assert isinstance(found, BadEvent), found
    return found.reason


def has_stats(one: Opened | list[Opened]) -> bool:
    found = event(one)
    return found.facts is not None and found.facts.stats is not None


# Binary


def test_a_kserve_response_is_read_with_what_stands_around_it() -> None:
    found = event(
        binary(
            time="2026-01-01T00:00:00.123456789Z",
            namespace="ml",
            component="predictor",
            endpoint="default",
            traceparent=TRACE,
        )
    )
    assert (found.source, found.request_id) == ("http://localhost:9081/", "e1")
    assert found.time == BEGIN_MS + 123
    assert found.context is not None
    assert found.context.instance is None  # Every pod calls itself localhost.
    assert found.context.endpoint == "default"
    assert found.context.labels == {"namespace": "ml"}
    assert found.context.traceparent == TRACE


def test_a_source_that_is_not_localhost_is_the_instance() -> None:
    context = event(binary(source="http://pod-1:9081/")).context
    assert context is not None
    assert context.instance == "http://pod-1:9081/"


@pytest.mark.parametrize("label", ["application/json", "text/event-stream", "text/plain"])
@pytest.mark.parametrize("body", [STREAM, encode(whole())])
def test_the_content_type_is_not_believed(label: str, body: bytes) -> None:
    """KServe labels a response with the content type of its request."""
    headers: Headers = [*cloudevent_headers(), ("content-type", label.encode())]
    assert has_stats(opened(headers, body))


def test_names_of_headers_are_compared_without_their_case() -> None:
    headers: Headers = [(name.upper(), value) for name, value in cloudevent_headers()]
    assert has_stats(opened(headers, STREAM))


def test_of_repeated_headers_the_first_with_a_value_counts() -> None:
    headers: Headers = [("ce_id", None), *cloudevent_headers(), ("ce_id", b"e2"), ("x", None)]
    assert event(opened(headers, STREAM)).request_id == "e1"


@pytest.mark.parametrize("missing", ["specversion", "id", "source", "type"])
def test_without_a_required_header_it_is_no_event(missing: str) -> None:
    headers = [(name, value) for name, value in cloudevent_headers() if name != f"ce_{missing}"]
    assert event(opened(headers, STREAM)).request_id == "c1"  # As a body without an envelope.


def test_a_request_shares_its_id_with_its_response_and_is_skipped() -> None:
    request = "org.kubeflow.serving.inference.request"
    assert binary(b"{}", type=request) is SkipReason.REQUEST_EVENT
    assert binary(b"{}", type="com.example.other") is SkipReason.UNRELATED_EVENT
    assert structured(type=request, data_base64="*") is SkipReason.REQUEST_EVENT


def test_an_empty_body_is_an_incomplete_response() -> None:
    assert event(binary(b"")).incomplete is IncompleteReason.EMPTY_BODY
    assert event(structured()).incomplete is IncompleteReason.EMPTY_BODY
    assert event(structured(data=None)).incomplete is IncompleteReason.EMPTY_BODY


def test_a_body_that_was_cut_is_an_incomplete_response() -> None:
    assert event(binary(encode(whole())[:-9])).incomplete is IncompleteReason.TRUNCATED


@pytest.mark.parametrize("code", ["400", "404", "503"])
@pytest.mark.parametrize("body", [b'{"error":{}}', b'{"detail":"x"}', b"no", b"\x1f\x8b\x08x", b""])
def test_the_status_of_an_error_makes_any_body_a_failure(code: str, body: bytes) -> None:
    assert event(binary(body, statuscode=code)).failed


@pytest.mark.parametrize("code", ["200", "", "x", "99999", "-500", "5e2"])
def test_another_status_is_no_failure(code: str) -> None:
    assert not event(binary(statuscode=code)).failed


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"hello", BadPayloadReason.UNRECOGNISED_FORMAT),
        (b'{"a":1}', BadPayloadReason.BODY_NOT_A_RESPONSE),
        (b"\x1f\x8b\x08x", BadPayloadReason.CORRUPT_ENCODING),
    ],
)
def test_a_body_that_is_no_response_is_refused(body: bytes, reason: BadPayloadReason) -> None:
    assert bad(binary(body)) is reason


# Structured


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize(
    "members",
    [
        {"data": whole()},
        {"data": whole(), "datacontenttype": "application/json; charset=utf-8"},
        {"data": STREAM.decode(), "datacontenttype": "text/event-stream"},
        {"data": encode(whole()).decode(), "datacontenttype": "text/plain"},
        {"data_base64": b64encode(STREAM).decode()},
        {"data_base64": b64encode(STREAM).decode(), "datacontenttype": "application/json"},
        {"data": None, "data_base64": b64encode(STREAM).decode()},
        {
            "specversion": "0.3",
            "datacontentencoding": "base64",
            "data": b64encode(STREAM).decode(),
        },
        {"data": whole(), "subject": None, "time": None, "extension": 5},
    ],
)
def test_each_form_of_data_is_read(labelled: bool, members: Json) -> None:
    assert has_stats(structured(labelled=labelled, **members))


@pytest.mark.parametrize("content", [None, "application/json", "text/JSON", "application/x+json"])
def test_a_string_of_a_json_type_is_read_as_the_text_that_it_holds(content: str | None) -> None:
    members: Json = {"data": encode(whole()).decode(), "datacontenttype": content}
    assert has_stats(structured(**members))


@pytest.mark.parametrize(
    "text",
    [
        encode(cloudevent(data=whole()))[:-1] + b',"x":NaN}',
        encode(cloudevent(data=whole()))[:-2] + b',"n":-Infinity}}',
        encode(cloudevent(data=whole(), x="@")).replace(b"@", b"\\ud800"),
        encode(cloudevent(data=whole(), x="@")).replace(b"@", b"\xff"),
        encode(cloudevent(datacontenttype="text/event-stream", data="@" + STREAM.decode())).replace(
            b"@", b"data: \xff\\n\\n"
        ),
    ],
)
@pytest.mark.parametrize("labelled", [True, False])
def test_what_a_strict_decoder_refuses_does_not_cost_the_event(text: bytes, labelled: bool) -> None:
    assert has_stats(opened(LABEL if labelled else [], text))


@pytest.mark.parametrize("missing", ["specversion", "id", "source", "type"])
@pytest.mark.parametrize("value", ["", None, [1], {}])
def test_a_required_attribute_that_is_unset_breaks_a_labelled_event(
    missing: str, value: Any
) -> None:
    assert bad(structured(**{missing: value})) is BadPayloadReason.INVALID_CLOUDEVENT


@pytest.mark.parametrize("name", ["id", "source"])
def test_an_id_that_is_too_long_to_be_kept_is_refused(name: str) -> None:
    attribute: Json = {name: "x" * 1025}
    assert bad(structured(**attribute)) is BadPayloadReason.INVALID_CLOUDEVENT


def test_an_unlabelled_object_without_the_required_members_is_no_event() -> None:
    members = cloudevent(data=whole("body"))
    del members["source"]
    assert event(opened([], encode(members))).request_id == "body"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"specversion": "2.0"}, BadPayloadReason.INVALID_CLOUDEVENT),
        ({"data": {}, "data_base64": "e30="}, BadPayloadReason.INVALID_CLOUDEVENT),
        ({"data_base64": "*"}, BadPayloadReason.INVALID_BASE64),
        ({"data_base64": 7}, BadPayloadReason.INVALID_BASE64),
    ],
)
def test_a_rule_that_is_broken_is_named(members: Json, reason: BadPayloadReason) -> None:
    assert bad(structured(**members)) is reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", BadPayloadReason.INVALID_JSON),
        (b"data: x", BadPayloadReason.INVALID_JSON),
        (b"7", BadPayloadReason.INVALID_CLOUDEVENT),
        (b'{"data":' + b"[" * 100_000, BadPayloadReason.TOO_DEEP),
    ],
)
def test_a_label_over_something_else_is_refused(text: bytes, reason: BadPayloadReason) -> None:
    assert bad(opened(LABEL, text)) is reason


# Batches


def batch(*entries: Any, labelled: bool = True) -> list[Opened]:
    found = opened(LABEL if labelled else [], encode(list(entries)))
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("labelled", [True, False])
def test_a_batch_is_taken_apart(labelled: bool) -> None:
    found = batch(
        cloudevent(id="a", data=whole()), cloudevent(id="b", data=whole()), labelled=labelled
    )
    assert [event(one).request_id for one in found] == ["a", "b"]


def test_a_bad_entry_does_not_cost_the_others() -> None:
    found = batch(cloudevent(data=whole()), 7, [], {"id": "x"}, cloudevent(data=whole()))
    assert [isinstance(one, BadEvent) for one in found] == [False, True, True, True, False]


def test_an_empty_batch_is_nothing() -> None:
    assert opened(LABEL, b"[]") is SkipReason.EMPTY_BATCH


def test_an_entry_of_another_envelope_does_not_make_an_unlabelled_batch_bad() -> None:
    found = batch(cloudevent(id="a", data=whole()), whole("b"), labelled=False)
    assert [event(one).request_id for one in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("label", "answer"),
    [
        ("application/cloudevents+json", True),
        ("Application/CloudEvents-batch+JSON; charset=utf-8", True),
        ("application/json", False),
        ("", False),
        (None, False),
    ],
)
def test_the_label_of_the_structured_mode(label: str | None, answer: bool) -> None:
    assert is_structured(label) is answer


names = st.sampled_from(["specversion", "id", "source", "type", "data", "data_base64", "time"])
values = st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.just(whole())


@settings(deadline=None, max_examples=150)
@given(
    members=st.dictionaries(names, values, max_size=3),
    noise=st.binary(max_size=2),
    at=st.integers(0, 300),
    labelled=st.booleans(),
)
def test_no_bytes_make_it_raise(members: Json, noise: bytes, at: int, labelled: bool) -> None:
    text = encode(cloudevent(**members))
    for value in (text, text[:at] + noise + text[at:], b"[" + text + b"]", noise):
        found = opened(LABEL if labelled else [], value)
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, Event):
                encode((one.source, one.request_id, one.context))


@settings(deadline=None, max_examples=150)
@given(
    headers=st.lists(
        st.tuples(
            st.sampled_from(["ce_id", "CE_type", "ce_source", "ce_specversion", "traceparent", ""])
            | st.text(max_size=3),
            st.none() | st.binary(max_size=5) | st.text(max_size=5) | st.just(b"1.0"),
        ),
        max_size=8,
    ),
    value=st.binary(max_size=20),
)
def test_no_headers_make_it_raise(
    headers: list[tuple[str, bytes | str | None]], value: bytes
) -> None:
    for given_headers in (headers, [*headers, *cloudevent_headers()]):
        found = opened(given_headers, value)
        if isinstance(found, Event):
            encode((found.source, found.request_id, found.context))
