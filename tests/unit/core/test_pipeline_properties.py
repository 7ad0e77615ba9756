"""What holds for any input: an outcome for everything, and the same one however it is cut."""

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from consumer.core.dead_letters import letter_of_message, letter_of_request, readable_headers
from consumer.core.message import CapturedMessage, Headers
from consumer.core.output_messages import output_of_letter, output_of_record
from consumer.core.partition import MessageResult
from schemas import AcceptanceRecord, MessageOutcome, RequestOutcome
from tests.unit.core import samples
from tests.unit.core.made import (
    BEGIN_MS,
    TOPIC,
    Json,
    chunk,
    cloudevent,
    cloudevent_headers,
    encode,
    fed,
    last_chunk,
    message,
    native,
    native_segment,
    outcomes_of,
    pipeline,
    sse,
    whole,
)

CORE = pipeline()
SAMPLES = [each.the_value for name in samples.names() for each in samples.messages(name)]
SHAPES = [
    native(body=chunk(), sequence=0),
    native(body="[DONE]", final=True),
    native_segment(b"data: {"),
    native(status=500),
    native(body=[whole()]),
    encode(cloudevent(data=whole())),
    encode([cloudevent(data=whole()), {}]),
    encode(chunk()),
    sse(chunk(), last_chunk(), "[DONE]"),
]

mutated = st.builds(
    lambda value, at, noise, cut: (value[:at] + noise + value[at:])[:cut],
    st.sampled_from([value for value in [*SAMPLES, *SHAPES] if value]),
    st.integers(0, 3000),
    st.binary(max_size=3) | st.sampled_from([b"NaN", b'"\\ud800"', b"[[[[", b"1e999", b"\x00"]),
    st.none() | st.integers(0, 3000),
)
values = st.none() | st.binary(max_size=60) | mutated | st.sampled_from(SHAPES)
headers = st.none() | st.lists(
    st.tuples(
        st.sampled_from(["content-type", "content-encoding", "traceparent", "ce_id"])
        | st.text(max_size=3),
        st.none()
        | st.binary(max_size=6)
        | st.sampled_from([b"application/cloudevents+json", b"gzip", "é\ud800"]),
    ),
    max_size=4,
)
stamps = st.tuples(st.sampled_from([0, 1, 2]), st.integers(-1, 2**63 - 1) | st.just(BEGIN_MS))
logs = st.lists(st.tuples(values, headers, stamps), max_size=6)


def captured(offset: int, value: bytes | None, of: Headers | None, stamp: Any) -> CapturedMessage:
    return CapturedMessage(
        at_topic=TOPIC,
        at_offset=offset,
        the_key=b"\xff",
        the_value=value,
        the_headers=of,
        timestamp_type=stamp[0],
        timestamp_ms=stamp[1],
    )


@settings(deadline=None, max_examples=300)
@given(log=logs)
@example(log=[(b"[" * 100_000, None, (1, BEGIN_MS))])
@example(log=[(b'{"request_id":"r","body":' + b"[" * 100_000, None, (1, BEGIN_MS))])
@example(log=[(native(body=whole()), [("traceparent", "é\ud800")], (1, 2**63 - 1))])
def test_any_bytes_give_an_outcome_and_every_outcome_can_be_written(
    log: list[tuple[bytes | None, Headers | None, Any]],
) -> None:
    """Whatever producers write, the service continues and loses nothing in silence."""
    messages = [captured(offset, *entry) for offset, entry in enumerate(log)]
    partition = CORE.partition(TOPIC, 0, 0)
    results = [partition.feed(each) for each in messages]
    for each, result in zip(messages, results, strict=True):
        assert isinstance(result, MessageResult)
        if result.outcome is MessageOutcome.BAD_PAYLOAD:
            reason = str(result.reason)
            letter = letter_of_message(
                each,
                result.outcome,
                reason,
                result.detail,
                partition.origin,
                readable_headers(each, reason),
            )
            output_of_letter(letter, 1_000_000)
    partition.checkpoint(0)
    partition.close_all()
    outcomes = partition.drain()
    for outcome in outcomes:
        if outcome.record is not None:
            output_of_record(outcome.record, outcome.response, 1_000_000)
        output_of_letter(letter_of_request(outcome, partition.origin), 1_000_000)
    assert partition.open_requests == 0
    accepted = [n for n, result in enumerate(results) if result.outcome is MessageOutcome.ACCEPTED]
    places = [outcome.response.place for outcome in outcomes]
    # A message of several events is bad if one of them is; another one may have begun the request.
    assert not accepted or min(places)[0] <= accepted[0]
    assert len(places) == len(set(places))


@settings(deadline=None, max_examples=50)
@given(log=logs)
def test_the_same_messages_give_the_same_outcomes(
    log: list[tuple[bytes | None, Headers | None, Any]],
) -> None:
    passes = []
    for core in (CORE, pipeline()):
        partition = core.partition(TOPIC, 0, 0)
        results = [partition.feed(captured(n, *entry)) for n, entry in enumerate(log)]
        partition.close_all()
        passes.append((results, msgspec.json.encode(partition.drain())))
    assert passes[0] == passes[1]


# Any split of a stream

BODIES: list[Json] = [
    chunk("c1"),
    chunk("c1") | {"usage": {"prompt_tokens": 11, "completion_tokens": 1}},
    chunk("c1") | {"text": "Grüne Äpfel 🍏\u2028"},
    chunk("c1", finish="stop"),
    last_chunk("c1"),
]
STREAM = sse(*BODIES, "[DONE]")


def essence(values: list[bytes]) -> tuple[Any, ...]:
    """Return what must not depend on how the stream was cut."""
    [result] = outcomes_of(values)
    assert result.outcome is RequestOutcome.PUBLISHED
    record = result.record
    assert record is not None
    assert (record.request_id, record.response_id, record.streamed) == ("r1", "c1", True)
    assert record.stream_complete
    numbers = [getattr(record, name) for name in AcceptanceRecord.__struct_fields__]
    return *numbers, record.model, record.prompt_tokens, record.finish_reason


EXPECTED = essence([native(body=STREAM.decode())])


@st.composite
def pieces(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    cuts = sorted(draw(st.sets(st.integers(1, len(stream) - 1), max_size=8)))
    borders = [0, *cuts, len(stream)]
    return [stream[a:b] for a, b in pairwise(borders)]


@settings(deadline=None, max_examples=100)
@given(cut=pieces(STREAM), sequenced=st.booleans(), data=st.data())
def test_any_cut_into_byte_segments_gives_the_same_record(
    cut: list[bytes], sequenced: bool, data: st.DataObject
) -> None:
    events = [
        native_segment(piece, **({"sequence": number} if sequenced else {}))
        for number, piece in enumerate(cut)
    ]
    if sequenced:
        events = data.draw(st.permutations(events))
    assert essence(events) == EXPECTED


@settings(deadline=None, max_examples=60)
@given(cut=pieces(STREAM.replace(b"\n", b"\r\n")))
def test_any_cut_of_a_stream_with_other_line_ends_gives_the_same_record(cut: list[bytes]) -> None:
    assert essence([native_segment(piece) for piece in cut]) == EXPECTED


@settings(deadline=None, max_examples=60)
@given(sizes=st.lists(st.integers(1, 3), min_size=6), data=st.data())
def test_any_grouping_of_chunks_into_messages_gives_the_same_record(
    sizes: list[int], data: st.DataObject
) -> None:
    left: list[Json | str] = [*BODIES, "[DONE]"]
    events: list[bytes] = []
    for size in sizes:
        group, left = left[:size], left[size:]
        if len(group) == 1 and data.draw(st.booleans()):
            events.append(native(body=group[0]))
        elif group:
            events.append(native(body=sse(*group).decode()))
    assert essence(events) == EXPECTED


@settings(deadline=None, max_examples=100)
@given(
    order=st.permutations(range(6)),
    ended_by=st.sampled_from(["mark", "flag"]),
    repeats=st.lists(st.integers(0, 5), max_size=4),
)
def test_any_order_of_sequenced_chunks_with_any_repeats_gives_the_same_record(
    order: list[int], ended_by: str, repeats: list[int]
) -> None:
    if ended_by == "mark":
        assume(order[0] != 5)  # An end marker alone opens no request.
        events = [native(body=body, sequence=n) for n, body in enumerate([*BODIES, "[DONE]"])]
    else:
        bodies = [chunk("c1"), *BODIES]
        events = [native(body=body, sequence=n, final=n == 5) for n, body in enumerate(bodies)]
    assert essence([events[n] for n in [*order, *repeats]]) == EXPECTED


@settings(deadline=None, max_examples=40)
@given(data=st.data(), requests=st.integers(2, 6))
def test_requests_that_overlap_in_any_way_do_not_touch_each_other(
    data: st.DataObject, requests: int
) -> None:
    queues = {
        f"r{number}": [*([chunk(f"c{number}")] * 2), last_chunk(f"c{number}", number), "[DONE]"]
        for number in range(1, requests + 1)
    }
    events = []
    while queues:
        name = data.draw(st.sampled_from(sorted(queues)))
        events.append(native(name, body=queues[name].pop(0)))
        if not queues[name]:
            del queues[name]
    found = {
        result.response.request_id: result.record.num_accepted_draft_tokens
        for result in outcomes_of(events)
        if result.record is not None
    }
    assert found == {f"r{number}": number for number in range(1, requests + 1)}


@settings(deadline=None, max_examples=40)
@given(cut=pieces(encode(whole("c1"))), data=st.data())
def test_any_cut_of_a_json_body_gives_its_numbers(cut: list[bytes], data: st.DataObject) -> None:
    events = [
        native_segment(piece, sequence=n, final=n == len(cut) - 1) for n, piece in enumerate(cut)
    ]
    [result] = outcomes_of(data.draw(st.permutations(events)))
    assert result.record is not None
    assert result.record.num_accepted_draft_tokens == 15
    assert result.record.stream_complete


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_the_same_response_in_any_envelope_gives_the_same_numbers(data: st.DataObject) -> None:
    body = data.draw(st.sampled_from([STREAM, encode(whole("c1"))]))
    text = body.decode()
    sent: list[tuple[bytes, Headers]] = [
        (body, []),
        (body, cloudevent_headers()),
        (encode(cloudevent(data=text, datacontenttype="text/plain")), []),
        (native(body=text, final=True), []),
        (native_segment(body, final=True), []),
    ]
    found = set()
    for value, of in sent:
        partition = CORE.partition(TOPIC, 0, 0)
        partition.feed(message(value, headers=of))
        [result] = partition.drain()
        assert result.record is not None
        assert result.record.stream_complete
        found.add(encode([getattr(result.record, n) for n in AcceptanceRecord.__struct_fields__]))
    assert len(found) == 1


def test_a_long_log_of_everything_leaves_the_partition_empty() -> None:
    partition = CORE.partition(TOPIC, 0, 0)
    for turn in range(3):
        fed(partition, SAMPLES, first=turn * len(SAMPLES))
    partition.close_all()
    partition.drain()
    assert partition.open_requests == 0
    assert partition.drain() == []
