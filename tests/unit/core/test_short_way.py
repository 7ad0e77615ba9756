"""The short path of events that only bring content gives what the long path gives, on any input."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consumer.core.message import CapturedMessage, Headers
from consumer.core.partition import MessageResult, Partition, Pipeline
from consumer.core.reassembly import content_run
from consumer.core.reassembly.limits import Limits
from schemas import MessageOutcome
from tests.unit.core.made import (
    BEGIN_MS,
    TOPIC,
    Json,
    chunk,
    last_chunk,
    message,
    native,
    pipeline,
    quicken_time,
)
from tests.unit.core.random_log import RandomLog

LIMITS = Limits(idle_timeout_ms=2_000, duplicate_window_ms=1_000, max_reread=100_000)
CORE = pipeline(LIMITS)


class Counting(CapturedMessage, frozen=True):
    """A message that must not be asked for its headers."""

    def headers(self) -> Headers | None:
        raise AssertionError


def outcomes(partition: Partition) -> list[bytes]:
    """Return the outcomes of requests, without the count that the short path does not keep."""
    results = partition.drain()
    for result in results:
        if result.response.facts is not None:
            result.response.facts.documents = 0
    return [msgspec.json.encode(result) for result in results]


def divided(
    results: list[tuple[Any, MessageResult]],
) -> tuple[Mapping[str, int], list[tuple[Any, MessageResult]], Mapping[Any, int]]:
    """Return how many messages were accepted, by envelope; the others; and ignored members."""
    others = [pair for pair in results if pair[1].outcome is not MessageOutcome.ACCEPTED]
    accepted = Counter(result.envelope for _, result in results)
    odd = Counter((result.envelope, name) for _, result in results for name in result.odd)
    return dict(accepted - Counter(result.envelope for _, result in others)), others, odd


def long_way(
    core: Pipeline, log: Sequence[CapturedMessage], cuts: list[int]
) -> list[tuple[Any, ...]]:
    """Take a log event after event, and keep all that is known of each request of its own."""
    partition = core.partition(TOPIC, 0, log[0].offset() if log else 0)
    states = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_run, "_content_id", lambda _: None)
        for first, last in zip([0, *cuts], [*cuts, len(log)], strict=True):
            results = [(each, partition.feed(each)) for each in log[first:last]]
            states.append(state(partition, *divided(results)))
        partition.close_all()
    return [*states, (outcomes(partition),)]


def short_way(
    core: Pipeline, log: Sequence[CapturedMessage], cuts: list[int]
) -> list[tuple[Any, ...]]:
    partition = core.partition(TOPIC, 0, log[0].offset() if log else 0)
    states = []
    for first, last in zip([0, *cuts], [*cuts, len(log)], strict=True):
        taken = partition.feed_all(log[first:last])
        assert not taken.repeated
        states.append(state(partition, taken.accepted, taken.not_accepted, taken.odd))
    partition.close_all()
    return [*states, (outcomes(partition),)]


def state(
    partition: Partition,
    accepted: Mapping[str, int],
    others: list[tuple[Any, MessageResult]],
    odd: Mapping[Any, int],
) -> tuple[Any, ...]:
    return accepted, others, odd, outcomes(partition), partition.position, partition.checkpoint(7)


@pytest.mark.parametrize("block_bits", [3, 5])
def test_random_logs(monkeypatch: pytest.MonkeyPatch, block_bits: int) -> None:
    quicken_time(monkeypatch, block_bits)
    for seed in range(120):
        random, log = Random(seed), RandomLog(seed, 10).messages
        cuts = sorted(random.sample(range(len(log)), random.choice((0, 1, 5))))
        assert short_way(CORE, log, cuts) == long_way(CORE, log, cuts), f"seed {seed}"


def test_a_log_that_is_resumed_in_the_middle() -> None:
    for seed in range(80):
        log = RandomLog(seed, 10).messages
        cut = Random(seed).randrange(len(log))
        before = CORE.partition(TOPIC, 0, log[0].offset())
        before.feed_all(log[:cut])
        before.drain()
        checkpoint = before.checkpoint(7)
        rest = [each for each in log if each.offset() >= checkpoint.start.offset]
        one, other = CORE.resume(TOPIC, 0, checkpoint), CORE.resume(TOPIC, 0, checkpoint)
        results = []
        for each in rest:
            result = one.feed(each)
            if one.live:
                results.append((each, result))
        taken = other.feed_all(rest)
        assert (taken.accepted, taken.not_accepted, taken.odd) == divided(results)
        assert outcomes(one) == outcomes(other)
        assert one.checkpoint(7) == other.checkpoint(7)


# Hostile events in an open stream

CONTENT = chunk() | {"usage": None, "metrics": None}
HINTS = [
    b'"usage":{"completion_tokens":3}',
    b'"error":{"message":"x"}',
    b'"error":null',
    b'"metrics":{"speculative_decoding":{}}',
    b'"id":"c2"',
    b'"id":7',
    b'"id":null',
    b'"model":5',
    b'"model":"other"',
    b'"index":1',
    b'"index":0.0',
    b'"finish_reason":"stop"',
    b'"object":"chat.completion"',
    b'"choices":[]',
    b'"choices":[{"index":1}]',
    b'"choices":null',
    b'"type":"error"',
    b'"meta_info":{"id":"x"}',
    b'"stop_reason":"x"',
    b'"request_id":"r2"',
    b'"request\\u005fid":"r1"',
    b'"sequence":3',
    b'"sequence":2.0',
    b'"sequence":99999999999999999999999',
    b'"timestamp":"2026-01-01T00:00:00.5Z"',
    b'"timestamp":-1',
    b'"timestamp":1e3',
    b'"timestamp":0',
    b'"timestamp":""',
    b'"timestamp":"yesterday"',
    b'"timestamp":true',
    b'"timestamp":1767225600',
    b'"timestamp":1767225600.5',
    b'"timestamp":1767225600500000',
    b'"timestamp":"1767225600.5"',
    b'"sequence":"3"',
    b'"sequence":-1',
    b'"final":"false"',
    b'"final":true',
    b'"final":0',
    b'"status":503',
    b'"status":200',
    b'"attempt":0',
    b'"labels":{"a":"b"}',
    b'"body":"[DONE]"',
    b'"body":[]',
    b'"body_base64":""',
    b'"x":NaN',
    b'"x":"\\ud800"',
    b'"x":"\xff"',
    b'"x":"\n"',
    b'"x":' + b"[" * 2000 + b"]" * 2000,
]


def content(sequence: int | None, **members: Any) -> bytes:
    body: Json = {**CONTENT, **members}
    if sequence is None:
        return native(body=body)
    return native(body=body, sequence=sequence, timestamp=BEGIN_MS + sequence)


@st.composite
def hostile(draw: st.DrawFn, sequence: int | None) -> bytes | None:
    """Return an event with something put in anywhere: between members, bytes, or nothing."""
    value = content(sequence)
    kind = draw(st.integers(0, 9))
    if kind < 4:
        at = draw(st.sampled_from([n for n, byte in enumerate(value) if byte in b",{"])) + 1
        hint = draw(st.sampled_from(HINTS))
        return value[:at] + hint + b"," + value[at:]
    if kind < 6:
        at, cut = draw(st.integers(0, len(value))), draw(st.integers(0, 3))
        noise = draw(st.binary(max_size=3) | st.sampled_from([b'"', b"\\", b"}", b"]", b" "]))
        return value[:at] + noise + value[at + cut :]
    if kind < 7:
        return draw(st.none() | st.binary(max_size=9))
    if kind < 8:
        return native(body=last_chunk(), sequence=sequence)
    return value


@st.composite
def hostile_logs(draw: st.DrawFn) -> list[CapturedMessage]:
    sequenced = draw(st.booleans())
    log, offset = [], draw(st.integers(0, 40))
    first = content(0 if sequenced else None)
    values: list[bytes | None] = [first]
    for number in range(1, draw(st.integers(1, 8))):
        sequence = number - draw(st.sampled_from([0, 0, 0, 0, 1, -1])) if sequenced else None
        values.append(draw(hostile(sequence)))
    for value in values:
        stamp = draw(st.sampled_from([(1, BEGIN_MS), (1, BEGIN_MS + 90_000), (2, 7), (0, -1)]))
        log.append(
            CapturedMessage(
                at_topic=TOPIC,
                at_offset=offset,
                the_value=value,
                timestamp_type=stamp[0],
                timestamp_ms=stamp[1],
            )
        )
        offset += draw(st.sampled_from([1, 1, 1, 2, 40]))
    return log


@settings(deadline=None, max_examples=300)
@given(log=hostile_logs(), data=st.data())
def test_hostile_events(log: list[CapturedMessage], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(log)), max_size=2)))
    assert short_way(CORE, log, cuts) == long_way(CORE, log, cuts)


@pytest.mark.parametrize("hint", HINTS)
def test_every_hint_at_every_place(hint: bytes) -> None:
    value, before, after = content(2), [content(0), content(1)], content(3)
    for at in [n + 1 for n, byte in enumerate(value) if byte in b",{"]:
        odd = value[:at] + hint + b"," + value[at:]
        log = [message(each, n) for n, each in enumerate([*before, odd, after])]
        assert short_way(CORE, log, []) == long_way(CORE, log, []), odd


@settings(deadline=None, max_examples=200)
@example(order=[1, 2], last=None, streams=1)  # Sequences that may begin at 1.
@given(
    order=st.lists(st.integers(0, 9), min_size=1, max_size=24),
    last=st.none() | st.tuples(st.integers(0, 24), st.integers(0, 10)),
    streams=st.integers(1, 2),
)
def test_any_order_with_losses_and_repeats(
    order: list[int], last: tuple[int, int] | None, streams: int
) -> None:
    values = [content(n) for n in order]
    if last is not None:
        values.insert(last[0], native(body=last_chunk(), sequence=last[1], final=True))
    log = [message(value, n) for n, value in enumerate(values)]
    if streams == 2:  # One stream is in order, and must not be touched by the other.
        other = [content(n).replace(b'"r1"', b'"r2"') for n in range(len(log))]
        pairs = zip(values, other, strict=True)
        log = [message(value, n) for n, value in enumerate(each for pair in pairs for each in pair)]
    assert short_way(CORE, log, []) == long_way(CORE, log, [])


def test_more_gaps_than_are_kept() -> None:
    gaps = [content(n) for n in range(0, 200, 2)]
    log = [message(value, n) for n, value in enumerate([*gaps, *map(content, range(199, 240))])]
    assert short_way(CORE, log, []) == long_way(CORE, log, [])


@pytest.mark.parametrize("lost", [0, 1, 5])
def test_what_follows_a_lost_event_goes_the_short_way(lost: int) -> None:
    partition = CORE.partition(TOPIC, 0, 0)
    for sequence in range(8):
        if sequence != lost:
            partition.feed(message(content(sequence), sequence))
    log = [Counting(at_offset=n, the_value=content(n)) for n in range(8, 100)]
    partition.feed = None  # type: ignore[method-assign, assignment]
    assert partition.feed_all(log).accepted == {"native": 92}


def test_a_lost_event_that_comes_late_completes_the_stream() -> None:
    partition = CORE.partition(TOPIC, 0, 0)
    order = [0, 1, 2, *range(4, 60), 3, *range(60, 80)]
    partition.feed_all([message(content(n), at) for at, n in enumerate(order)])
    partition.feed(message(native(body=last_chunk(), sequence=80, final=True), 80))
    [result] = partition.drain()
    assert result.record is not None
    assert result.record.stream_complete


def test_content_is_taken_without_headers_and_the_short_way_is_gone() -> None:
    """What this file is for does happen: the long path is not what takes these."""
    partition = CORE.partition(TOPIC, 0, 0)
    partition.feed(message(content(0)))
    log = [Counting(at_offset=n, the_value=content(n)) for n in range(1, 100)]
    partition.feed = None  # type: ignore[method-assign, assignment]
    assert partition.feed_all(log).accepted == {"native": 99}


def test_what_was_read_before_is_passed_over() -> None:
    partition = CORE.partition(TOPIC, 0, 0)
    log = [message(content(n), n) for n in range(9)]
    assert partition.feed_all([*log[:5], *log[3:]]).repeated == 2
    assert partition.position == 9
