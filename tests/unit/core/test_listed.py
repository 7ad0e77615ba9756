"""The list of open requests in a checkpoint is the truth, whatever else is known of their ids."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from consumer.core.checkpoint import Checkpoint, decode, encode, topic_hash
from consumer.core.message import CapturedMessage
from consumer.core.partition import Partition, Pipeline
from consumer.core.reassembly import index
from consumer.core.reassembly.limits import Limits
from schemas import IncompleteReason
from tests.unit.core.made import TOPIC, chunk, last_chunk, message, native, pipeline, quicken_time

TOPIC_HASH = topic_hash(TOPIC)
LIMITS = Limits(idle_timeout_ms=2_000, duplicate_window_ms=1_000, max_reread=100_000)
LONGER = msgspec.structs.replace(LIMITS, idle_timeout_ms=600_000)

Feed = Callable[[Partition, Sequence[CapturedMessage]], object]
Outcome = tuple[tuple[int, int], Any]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quicken_time(monkeypatch)


def one_by_one(partition: Partition, messages: Sequence[CapturedMessage]) -> None:
    for each in messages:
        partition.feed(each)


def all_at_once(partition: Partition, messages: Sequence[CapturedMessage]) -> None:
    partition.feed_all(messages)


def beats(first: int, count: int) -> list[bytes]:
    """Return chunks of a stream that goes on, so that re-reading must reach back to its first."""
    return [native("long", body=chunk(), sequence=n) for n in range(first, first + count)]


def laid_out(values: Sequence[bytes]) -> list[CapturedMessage]:
    return [message(value, offset, 100 * offset) for offset, value in enumerate(values)]


def outcomes(partition: Partition) -> list[Outcome]:
    return [(one.response.place, one.reason or one.outcome) for one in partition.drain()]


def checkpoint_of(core: Pipeline, messages: Sequence[CapturedMessage]) -> Checkpoint:
    """Return what a partition commits after messages, as it comes back from the broker."""
    partition = core.partition(TOPIC, 0, 0)
    one_by_one(partition, messages)
    partition.drain()
    found = decode(encode(partition.checkpoint(TOPIC_HASH)), partition.position, TOPIC_HASH)
    assert isinstance(found, Checkpoint)
    return found


def resumed(
    core: Pipeline, checkpoint: Checkpoint, messages: Sequence[CapturedMessage], feed: Feed
) -> Partition:
    partition = core.resume(TOPIC, 0, checkpoint)
    feed(partition, messages[checkpoint.start.offset : checkpoint.position])
    partition.go_live()
    return partition


@pytest.mark.parametrize("limits", [LIMITS, LONGER], ids=["the same timeout", "a longer one"])
@pytest.mark.parametrize("feed", [one_by_one, all_at_once])
@pytest.mark.parametrize("sequenced", [False, True])
def test_a_request_that_idled_out_and_came_again_is_read_from_where_the_list_says(
    feed: Feed, limits: Limits, *, sequenced: bool
) -> None:
    """An older stream keeps the re-read so far back that the first attempt is met again."""

    def event(sequence: int, body: Any) -> bytes:
        return native("again", body=body, **({"sequence": sequence} if sequenced else {}))

    before = [*beats(0, 1), event(0, chunk("c")), *beats(1, 118)]
    began = len(before)
    second = [event(0 if not sequenced else 1, chunk("c")), *beats(119, 3)]
    messages = laid_out([*before, *second, event(0 if not sequenced else 2, last_chunk("c"))])
    core = pipeline(LIMITS)
    checkpoint = checkpoint_of(core, messages[:-1])
    assert checkpoint.open == ((0, 0), (began, 0))
    assert checkpoint.start.offset == 0
    partition = resumed(pipeline(limits), checkpoint, messages, feed)
    assert partition.open_requests == 2
    feed(partition, messages[-1:])
    partition.close_all()
    assert [place for place, _ in outcomes(partition)] == [(0, 0), (began, 0)]


def test_more_listed_requests_than_the_bound_of_today_are_closed_once_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages = laid_out([native(f"r{number}", body=chunk()) for number in range(20)])
    checkpoint = checkpoint_of(pipeline(LIMITS), messages)
    monkeypatch.setattr(index, "open_budget", lambda _: (50, 10))
    partition = resumed(pipeline(LIMITS), checkpoint, messages, one_by_one)
    assert partition.open_requests == 4
    assert outcomes(partition) == [((n, 0), IncompleteReason.BOUND) for n in range(16)]


def test_a_listed_request_that_is_too_long_by_the_settings_of_today_keeps_all_its_events() -> None:
    """It is closed once the partition is live, not where the re-read passes the new limit."""
    messages = laid_out(beats(0, 100))
    checkpoint = checkpoint_of(pipeline(LONGER), messages)
    core = pipeline(msgspec.structs.replace(LONGER, max_reread=40))
    partition = resumed(core, checkpoint, messages, one_by_one)
    [found] = partition.drain()
    assert found.reason is IncompleteReason.TOO_LONG
    assert found.response.last_offset == 99
