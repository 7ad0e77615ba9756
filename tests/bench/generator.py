"""Writes chunk events at a steady rate, in a process of its own, and says whether it kept it up.

`python -m tests.bench.generator BOOTSTRAP TOPIC RATE SECONDS` writes one line of JSON at the end.
What is due is written every few milliseconds by a clock that does not wait for anybody: what comes
late is made up for, and counts as late.
"""

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Final

from confluent_kafka import Producer

from tests.bench.runs import CLOCK
from tests.bench.traffic import STREAMS, steady

_TICK_S: Final = 0.005
_LATE_MS: Final = 100.0
_MAX_QUEUED: Final = 1_000_000
_WAIT_S: Final = 60.0
_ENOUGH: Final = 0.99


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        events: how many.
        ended: how many of them ended a stream.
        rate: events per second that were written.
        wanted: events per second that were asked for.
        late_ms: most milliseconds that an event was written after it was due.

    """

    events: int
    ended: int
    rate: float
    wanted: float
    late_ms: float

    @property
    def verdict(self) -> str:
        """Tell how far the generator itself fell behind; empty if it did not."""
        if self.rate < self.wanted * _ENOUGH:
            return f"GENERATOR BEHIND: wrote {self.rate:,.0f}/s"
        if self.late_ms > _LATE_MS:
            return f"generator late by up to {self.late_ms:.0f} ms"
        return ""


class Generator:
    """The process, as the one that measures sees it."""

    def __init__(self, bootstrap: str, topic: str, rate: float, seconds: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, bootstrap, topic, str(rate), str(seconds)],
            stdout=subprocess.PIPE,
        )

    def is_running(self) -> bool:
        return self._process.poll() is None

    def written(self) -> Written:
        """Return what it has written, when it has ended."""
        said, _ = self._process.communicate(timeout=_WAIT_S)
        return Written(**json.loads(said))

    def stop(self) -> None:
        if self.is_running():
            self._process.kill()
            self._process.communicate()


def generate(bootstrap: str, topic: str, rate: float, seconds: float) -> Written:
    """Write events at a rate for so long."""
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
    done, ended, late, total = 0, 0, 0.0, int(rate * seconds)
    while done < total:
        passed = time.perf_counter() - began
        due = min(int(passed * rate), total)
        if due > done:
            late = max(late, passed - done / rate - _TICK_S)
        for name, value, timestamp, ends in islice(events, due - done):
            producer.produce(topic, value, name, timestamp=timestamp)
            ended += ends
        done = due
        producer.poll(0)
        time.sleep(_TICK_S)
    spent = time.perf_counter() - began
    if producer.flush(_WAIT_S):
        raise TimeoutError("the broker does not take the events")
    return Written(done, ended, done / max(spent, seconds), rate, late * 1000)


if __name__ == "__main__":
    bootstrap_, topic_, rate_, seconds_ = sys.argv[1:]
    print(json.dumps(asdict(generate(bootstrap_, topic_, float(rate_), float(seconds_)))))
