"""What an event costs, counted and not timed: function calls, Python's and C's, in the core.

The counts are the same on every machine; a call more for each event of a case fails here. Where a
change is worth its calls, the number below is what to change. `python -m tests.bench.instructions`
counts instructions, for what does not show in calls.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import pytest

from consumer.telemetry.metrics import Metrics
from tests.bench.core import json_body, messages, read, stream_body
from tests.bench.traffic import STREAM_LENGTH, chunk
from tests.unit.core.made import pipeline

_EVENTS: Final = 1_200  # Whole streams, and several blocks of stream time.
_SOME: Final = 240  # Where each costs more.
_FEW: Final = 20

Values = Callable[[], list[bytes]]


def interleaved(length: int, streams: int = 20) -> list[bytes]:
    """Return streams of so many chunks, so many at a time."""
    rounds = range(0, _EVENTS // length, streams)
    return [
        chunk(f"req-{first + number:032d}", sequence, last=sequence == length - 1)
        for first in rounds
        for sequence in range(length)
        for number in range(min(streams, _EVENTS // length - first))
    ]


def some_bad() -> list[bytes]:
    values = interleaved(STREAM_LENGTH)
    return [b'{"a":1}' if at % 100 == 50 else value for at, value in enumerate(values)]


def cut() -> list[bytes]:
    return [value[: len(value) // 2] for value in interleaved(STREAM_LENGTH)[:_SOME]]


# Calls per thousand events (CPython 3.11).
CASES: Final[dict[str, tuple[Values, int]]] = {
    "chunks": (lambda: interleaved(STREAM_LENGTH), 8_577),
    "chunks of long streams": (lambda: interleaved(_EVENTS, 1), 4_988),
    "first and last chunks": (lambda: interleaved(2)[:_SOME], 121_590),
    "chunks, 1 % bad": (some_bad, 10_393),
    "all bad": (cut, 62_010),
    "whole JSON": (lambda: [json_body(1 << 10) for _ in range(_FEW)], 188_050),
    "whole SSE": (lambda: [stream_body(1 << 14) for _ in range(_FEW)], 432_050),
}
_SAME: Final = sys.version_info[:2] == (3, 11)  # Other versions inline other things.
_MARGIN: Final = 500 if _SAME else 1_500  # Half a call per event.


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the calls that are made inside."""
    count = [0]

    def profile(_frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            count[0] += 1

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # What others have hung on the collector is not ours.
    sys.setprofile(profile)
    try:
        yield count
    finally:
        sys.setprofile(before)
        gc.enable()


def calls_per_thousand(values: list[bytes]) -> int:
    core, log = pipeline(), messages(values)
    read(core.partition("events", 0, 0), log)  # Fills what is kept between calls.
    partition, metrics = core.partition("events", 0, 0), Metrics()
    with counted() as count:
        read(partition, log, metrics)
    return count[0] * 1000 // len(values)


@pytest.mark.parametrize("name", CASES)
def test_an_event_costs_as_many_calls_as_before(name: str) -> None:
    make, known = CASES[name]
    calls = calls_per_thousand(make())
    said = f"{calls} calls per thousand events, {known} before"
    assert calls <= known + _MARGIN, said
    if _SAME:
        assert calls >= known - _MARGIN, f"{said}: write it down, or more would come back unseen"
