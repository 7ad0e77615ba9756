"""The cost of an event in the core, in function calls of Python and C.

The counts are the same on every machine, so one more call per event fails here. If a change is
worth its calls, change the number below. `python -m tests.bench.instructions` counts instructions.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import pytest

from consumer.telemetry.metrics import Metrics
from tests.bench.core import messages, read
from tests.bench.traffic import STREAM_LENGTH, interleaved, json_body, stream_body
from tests.unit.core.made import pipeline

_EVENTS: Final = 1_200  # Whole streams, and several blocks of stream time.
_SOME: Final = 240  # For cases in which an event costs more.
_FEW: Final = 20

Values = Callable[[], list[bytes]]


def values_of(streams: int, length: int) -> list[bytes]:
    """Return the events of whole streams, so many at a time."""
    rounds = _EVENTS // (streams * length)
    return [value for _, value in interleaved(streams, length, rounds)]


def some_bad() -> list[bytes]:
    values = values_of(20, STREAM_LENGTH)
    return [b'{"a":1}' if at % 100 == 50 else value for at, value in enumerate(values)]


def cut() -> list[bytes]:
    return [value[: len(value) // 2] for value in values_of(20, STREAM_LENGTH)[:_SOME]]


# Calls per thousand events (CPython 3.11).
CASES: Final[dict[str, tuple[Values, int]]] = {
    "chunks": (lambda: values_of(20, STREAM_LENGTH), 7_975),
    "chunks of long streams": (lambda: values_of(1, _EVENTS), 4_106),
    "first and last chunks": (lambda: values_of(20, 2)[:_SOME], 113_279),
    "chunks, 1 % bad": (some_bad, 11_363),
    "all bad": (cut, 57_337),
    "whole JSON": (lambda: [json_body(1 << 10) for _ in range(_FEW)], 167_100),
    "whole SSE": (lambda: [stream_body(1 << 14) for _ in range(_FEW)], 403_100),
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
    gc.disable()  # Other tests may have added callbacks to the collector.
    sys.setprofile(profile)
    try:
        yield count
    finally:
        sys.setprofile(before)
        gc.enable()


def calls_per_thousand(values: list[bytes]) -> int:
    core, log = pipeline(), list(messages(values))
    read(core.partition("events", 0, 0), log)  # Fills the caches.
    partition, metrics = core.partition("events", 0, 0), Metrics()
    with counted() as count:
        read(partition, log, metrics)
    return count[0] * 1000 // len(values)


@pytest.mark.parametrize("name", CASES)
def test_an_event_costs_as_many_calls_as_before(name: str) -> None:
    make, known = CASES[name]
    calls = calls_per_thousand(make())
    text = f"{calls} calls per thousand events, {known} before"
    assert calls <= known + _MARGIN, text
    if _SAME:
        assert calls >= known - _MARGIN, f"{text}: write down the gain, to keep it"
