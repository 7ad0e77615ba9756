"""Values opened by their content: entries, wrappers and formats around any response."""

import gzip
import json
import time
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.core.reassembly.limits import Limits
from consumer.core.response_event import BadEvent, Event, EventKind, Opened
from schemas import BadPayloadReason, SkipReason
from tests.unit.core.made import (
    Json,
    chunk,
    cloudevent,
    cloudevent_headers,
    encode,
    last_chunk,
    message,
    native,
    opened,
    outcomes_of,
    pipeline,
    short,
    sse,
    whole,
)

STREAM = sse(chunk("s"), last_chunk("s"), "[DONE]")
OPENER = pipeline().opener


def steps_of(value: bytes) -> list[tuple[str, ...]]:
    """Return what is opened on the way to each event of a value."""
    trail = OPENER.trail(message(value))
    return [] if trail is None else trail.steps


def ids(value: bytes, **options: Any) -> list[str | None]:
    """Return the request ids of the events of a value; None for what is not an event."""
    found = opened(value, **options)
    return [
        one.request_id if isinstance(one, Event) else None
        for one in (found if isinstance(found, list) else [found])
    ]


def reason(value: bytes, **options: Any) -> BadPayloadReason | SkipReason:
    found = opened(value, **options)
    if isinstance(found, BadEvent):
        return found.reason
    assert isinstance(found, SkipReason)
    return found


def text(value: bytes) -> str:
    return value.decode()


# One stream or many


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("between", ["\n", "\r\n", "", "\n\n"])
def test_chunks_of_one_id_are_one_stream_however_they_are_printed(
    between: str, indent: int | None
) -> None:
    printed = between.join(json.dumps(one, indent=indent) for one in (chunk("a"), last_chunk("a")))
    found = opened(printed.encode())
    assert isinstance(found, Event)
    assert (found.kind, found.request_id) == (EventKind.WHOLE, "a")
    assert found.facts is not None
    assert found.facts.stats is not None


@pytest.mark.parametrize("join", [b"\n".join, lambda parts: b"[" + b",".join(parts) + b"]"])
def test_chunks_of_several_ids_are_events_of_their_own(join: Any) -> None:
    found = opened(join([encode(chunk("a")), encode(chunk("b")), encode(last_chunk("a"))]))
    assert isinstance(found, list)
    assert [one.kind for one in found if isinstance(one, Event)] == [EventKind.CHUNK] * 3
    assert ids(join([encode(chunk("a")), encode(chunk("b"))])) == ["a", "b"]


@pytest.mark.parametrize("indent", [None, 2])
def test_whole_responses_of_different_ids_are_as_many_requests(indent: int | None) -> None:
    lines = "\n".join(json.dumps(whole(name), indent=indent) for name in "abc")
    assert ids(lines.encode()) == ["a", "b", "c"]
    assert ids(encode([whole(name) for name in "abc"])) == ["a", "b", "c"]


def test_several_answers_of_one_id_are_one_request() -> None:
    assert ids(encode([whole("a"), whole("a")])) == ["a"]
    assert ids(encode([whole("a"), whole("b"), whole("a")])) == ["a", "b"]


def test_a_list_of_generations_is_one_answer() -> None:
    """SGLang's `/generate` answers several prompts with a list, each entry with its own id."""
    one: Json = {"text": "x", "meta_info": {"id": "g1", "finish_reason": {"type": "stop"}}}
    two: Json = {"text": "y", "meta_info": {"id": "g2", "finish_reason": {"type": "stop"}}}
    found = opened(encode([one, two]))
    assert isinstance(found, Event)
    assert found.facts is not None
    assert found.facts.choices == 2


def test_entries_of_different_envelopes_are_events_in_their_order() -> None:
    entries = [
        json.loads(native("n", body=whole("x"))),
        cloudevent(id="c", data=whole()),
        whole("b"),
    ]
    assert ids(encode(entries)) == ["n", "c", "b"]
    assert ids(b"\n".join(map(encode, entries))) == ["n", "c", "b"]


def test_the_index_of_an_event_is_its_place_in_the_message() -> None:
    assert ids(encode([whole("a"), {"other": 1}, whole("b")])) == ["a", None, "b"]


def test_a_message_is_bad_if_an_entry_is_and_the_others_have_their_records() -> None:
    values = [encode([whole("a"), {"other": 1}, whole("b")])]
    assert [short(result) for result in outcomes_of(values)] == ["published", "published"]


# Wrappers


@pytest.mark.parametrize(
    "wrapper",
    [
        lambda inner: {"log": inner + "\n", "stream": "stdout"},
        lambda inner: {"message": inner, "@timestamp": "2026-01-01T00:00:00Z"},
        lambda inner: {"MESSAGE": inner, "HOST": "gateway"},
        lambda inner: {"schema": {"type": "string"}, "payload": inner},
        lambda inner: {
            "schema": {"type": "bytes"},
            "payload": b64encode(inner.encode()).decode(),
        },
        lambda inner: {"payload": {"before": None, "after": {"id": 1, "answer": inner}, "op": "c"}},
        lambda inner: {"before": None, "after": {"id": 1, "answer": inner}, "op": "c"},
        lambda inner: {"id": 1, "payload": inner, "type": "created"},
        lambda inner: {"value": inner},
        lambda inner: cloudevent(type="com.dapr.event.sent", data=inner),
        lambda inner: inner,
    ],
)
@pytest.mark.parametrize(
    ("inner", "request_id"),
    [
        (native("n", body=whole("x")), "n"),
        (encode(whole("w")), "w"),
        (STREAM, "s"),
        (encode(chunk("c")), "c"),
    ],
)
def test_a_wrapper_around_any_text_is_opened(wrapper: Any, inner: bytes, request_id: str) -> None:
    assert ids(encode(wrapper(text(inner)))) == [request_id]


@pytest.mark.parametrize(
    "columns",
    [
        {"body": whole("w")},
        {"body": text(encode(whole("w")))},
        {"body": text(STREAM), "sequence": 0},
        {"body": text(STREAM)[7:]},
        {"body": "[DONE]"},
        {"body_base64": b64encode(STREAM).decode()},
        {"body": None, "final": True},
        {"body": [chunk("w"), last_chunk("w")]},
    ],
)
def test_a_row_of_native_events_keeps_its_request_id(columns: Json) -> None:
    row = {"id": 7, "request_id": "r", **columns}
    assert ids(encode({"before": None, "after": row, "op": "c"})) == ["r"]
    assert ids(encode({"payload": {"after": row, "op": "c"}})) == ["r"]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [], "model": "m"},
        text(encode({"messages": [], "model": "m"})),
        text(encode([{"role": "user", "content": "Hi"}])),
        "Tell me",
        "",
        None,
    ],
)
def test_a_row_with_the_request_in_its_body_is_searched_for_the_response(body: Any) -> None:
    row = {"request_id": "r", "body": body, "final": True, "answer": text(encode(whole("w")))}
    assert ids(encode({"after": row})) == ["w"]


def test_a_wrapper_may_hold_an_object_or_several_entries() -> None:
    assert ids(encode({"message": whole("w")})) == ["w"]
    assert ids(encode({"message": [whole("a"), whole("b")]})) == ["a", "b"]
    assert ids(encode({"log": text(encode(whole("a")) + b"\n" + encode(whole("b")))})) == ["a", "b"]


def test_the_id_of_a_wrapper_is_not_taken() -> None:
    assert ids(encode({"id": "outer", "message": whole("inner")})) == ["inner"]


def test_a_wrapper_counts_only_if_its_content_is_recognised() -> None:
    assert reason(encode({"log": "GET /v1/models 200"})) is BadPayloadReason.UNRECOGNISED_SHAPE
    assert reason(encode({"message": {"user": "x"}})) is BadPayloadReason.UNRECOGNISED_SHAPE
    assert reason(encode({"message": "[info] started"})) is BadPayloadReason.UNRECOGNISED_SHAPE


def test_the_first_member_that_holds_a_response_counts() -> None:
    assert ids(encode({"message": "{}", "log": {"a": 1}, "body": whole("w")})) == ["w"]


@pytest.mark.parametrize(("times", "opens"), [(1, True), (3, True), (4, False), (9, False)])
@pytest.mark.parametrize("wrap", [lambda inner: {"message": text(inner)}, text])
def test_a_response_may_be_wrapped_three_times(wrap: Any, *, times: int, opens: bool) -> None:
    value = encode(whole("w"))
    for _ in range(times):
        value = encode(wrap(value))
    if opens:
        assert ids(value) == ["w"]
    else:
        assert reason(value) is BadPayloadReason.WRAPPED_TOO_DEEP


def test_a_wrapped_response_that_was_cut_off_is_named_so() -> None:
    """rsyslog cuts a line at 8096 bytes."""
    value = encode({"message": text(encode(whole("w")))[:-9]})
    assert reason(value) is BadPayloadReason.INVALID_JSON


def test_generated_text_is_not_opened() -> None:
    """What a model wrote must not become a record."""
    answer = {"model": "m", "created_at": "x", "response": text(encode(whole("w"))), "done": True}
    assert reason(encode(answer)) is SkipReason.OLLAMA


# Compression


@pytest.mark.parametrize("value", [native("n", body=whole("x")), encode(cloudevent(data=whole()))])
def test_a_compressed_event_of_any_envelope_is_opened(value: bytes) -> None:
    assert ids(gzip.compress(value)) == ids(value)


# Caps and hostile input


def test_entries_above_the_bound_are_refused() -> None:
    entries = encode([whole(str(number)) for number in range(5)])
    assert len(ids(entries, limits=limits(max_entries=5))) == 5
    found = reason(entries, limits=limits(max_entries=4))
    assert found is BadPayloadReason.TOO_MANY_ENTRIES


def test_entries_of_all_wrappers_count_together() -> None:
    inner = text(encode([whole("a"), whole("b")]))
    value = encode([{"message": inner}, {"message": inner}])
    assert len(ids(value, limits=limits(max_entries=6))) == 4
    found = opened(value, limits=limits(max_entries=5))
    assert isinstance(found, list)
    assert [isinstance(one, BadEvent) for one in found] == [False, False, True]


def limits(**bounds: int) -> Limits:
    return Limits(**bounds)


LEAVES = st.sampled_from(
    [whole("w"), chunk("c"), json.loads(native("n", body=whole())), cloudevent(data=whole())]
) | st.text(max_size=5)
WRAPPED = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["message", "payload", "after", "schema", "data", "x"]),
            inner,
            max_size=3,
        )
        | inner.map(json.dumps)
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=300)
@given(
    value=WRAPPED.map(encode),
    at=st.integers(0, 400),
    noise=st.sampled_from([b"", b"\n", b"\x00", b"\xff", b'"', b"{", b"]"]),
    end=st.integers(0, 3000),
)
def test_opening_never_raises_and_is_always_the_same(
    value: bytes, at: int, noise: bytes, end: int
) -> None:
    value = (value[:at] + noise + value[at:])[:end]
    one, two = (OPENER.open(message(value)) for _ in range(2))
    assert encode(comparable(one[1])) == encode(comparable(two[1]))
    assert one[0] == two[0]
    steps = steps_of(value)
    assert not steps or len(steps) == (len(one[1]) if isinstance(one[1], list) else 1)


def comparable(found: Opened | list[Opened]) -> list[Any]:
    return [
        (one.kind, one.source, one.request_id, one.raw) if isinstance(one, Event) else str(one)
        for one in (found if isinstance(found, list) else [found])
    ]


def nested(size: int) -> bytes:
    return encode([text(encode({"log": text(encode({"m": "x" * 100}))}))] * (size // 150))


@pytest.mark.parametrize(
    "make",
    [
        lambda size: b"{\n" * (size // 2),
        lambda size: b'{"a":[\n' * (size // 7),
        lambda size: b'{"a":"\n' * (size // 7),
        lambda size: b'{"a":NaN}\n' * (size // 10),
        lambda size: b"[" + b"{}," * (size // 3) + b"{}]",
        lambda size: b"[1," * (size // 3),
        lambda size: b'{"x":1}' * (size // 7),
        lambda size: b"[2026-01-01 00:00:00] {}\n" * (size // 25),
        lambda size: encode("\\" * (size // 2)),
        lambda size: encode({"message": "[" * size}),
        lambda size: encode({f"member{number}": 1 for number in range(size // 14)}),
        nested,
    ],
)
def test_opening_takes_time_in_proportion_to_the_size(make: Any) -> None:
    small, large = make(20_000), make(200_000)
    assert best_seconds(large) < 40 * max(best_seconds(small), 0.0005)  # 100 if it were quadratic.


def best_seconds(value: bytes) -> float:
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        opened(value, limits=limits(max_entries=1_000_000))
        best = min(best, time.perf_counter() - begin)
    return best


# Steps


@pytest.mark.parametrize(
    ("value", "steps"),
    [
        (native("n", body=whole()), [()]),
        (encode(whole()), [()]),
        (gzip.compress(encode({"log": text(encode(whole()))})), [("compression", "member log")]),
        (encode(text(encode(whole()))), [("JSON string",)]),
        (
            encode({"message": [whole("a"), whole("b")]}),
            [("member message", "entry 0 of 2"), ("member message", "entry 1 of 2")],
        ),
        (
            encode({"payload": {"after": {"answer": text(encode(whole()))}}}),
            [("member payload", "member after.answer")],
        ),
        (encode({"after": {"request_id": "r", "body": whole()}}), [("member after",)]),
    ],
)
def test_the_steps_to_each_event_are_named(value: bytes, steps: list[tuple[str, ...]]) -> None:
    assert steps_of(value) == steps


def test_what_is_not_recognised_names_its_members_and_no_value() -> None:
    found = opened(encode({"user": "canary", "prompt text?": 1, "n": 2}))
    assert isinstance(found, BadEvent)
    assert found.detail == "its members are user, n and 1 more"


# CloudEvents of other types


def test_a_cloudevent_of_another_type_gives_its_context_to_the_response_inside() -> None:
    found = opened(encode(whole("w")), cloudevent_headers(type="x", source="http://pod-1"))
    assert isinstance(found, Event)
    assert (found.source, found.request_id) == ("", "w")
    assert found.context is not None
    assert found.context.instance == "http://pod-1"


def test_a_cloudevent_of_a_request_is_not_opened() -> None:
    headers = cloudevent_headers(type="com.example.request")
    assert opened(encode(whole("w")), headers) is SkipReason.REQUEST_EVENT
