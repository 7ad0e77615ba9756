"""Write chunk events at a steady rate in a separate process, and report the rate reached."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from typing import Final

from confluent_kafka import Producer

from tests.bench.runs import CLOCK
from tests.bench.traffic import STREAMS, steady

_TICK_S: Final = 0.005
_MAX_LATE_MS: Final = 100.0
_MAX_QUEUED: Final = 1_000_000
_FLUSH_S: Final = 60.0
_MIN_SHARE: Final = 0.99  # Of the requested rate.


@dataclass(frozen=True)
class Generated:
    """The events that were written.

    Attributes:
        events: number of events.
        ended: number of events that ended a stream.
        rate: events per second.
        wanted: events per second that were requested.
        late_ms: maximum delay of an event.

    """

    events: int
    ended: int
    rate: float
    wanted: float
    late_ms: float

    @property
    def verdict(self) -> str:
        """How far the generator fell behind; empty if it did not."""
        if self.rate < self.wanted * _MIN_SHARE:
            return f"GENERATOR BEHIND: wrote {self.rate:,.0f}/s"
        if self.late_ms > _MAX_LATE_MS:
            return f"generator late by up to {self.late_ms:.0f} ms"
        return ""


@contextmanager
def generator(
    bootstrap: str, topic: str, rate: float, seconds: float
) -> Iterator[Future[Generated]]:
    """Write events at a rate in another process, for so many seconds."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool.submit(_generate, bootstrap, topic, rate, seconds)


def _generate(bootstrap: str, topic: str, rate: float, seconds: float) -> Generated:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "compression.type": "lz4",
            "queue.buffering.max.messages": _MAX_QUEUED,
        }
    )
    events = steady(STREAMS, CLOCK.wall)
    began = time.perf_counter()
    done, ended, late_s, total = 0, 0, 0.0, int(rate * seconds)
    while done < total:
        passed = time.perf_counter() - began
        due = min(int(passed * rate), total)
        if due > done:
            late_s = max(late_s, passed - done / rate - _TICK_S)
        for name, value, timestamp, ends in islice(events, due - done):
            producer.produce(topic, value, name, timestamp=timestamp)
            ended += ends
        done = due
        producer.poll(0)
        time.sleep(_TICK_S)
    spent = time.perf_counter() - began
    if producer.flush(_FLUSH_S):
        raise TimeoutError("the broker does not accept the events")
    return Generated(done, ended, done / max(spent, seconds), rate, late_s * 1000)
