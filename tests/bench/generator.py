"""Write chunk events at a steady rate in a separate process, and report whether it kept the rate.

`python -m tests.bench.generator BOOTSTRAP TOPIC RATE SECONDS` prints one line of JSON at the end.
Every few milliseconds it writes all events that are due; an event written later counts as late.
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
        if self.rate < self.wanted * _ENOUGH:
            return f"GENERATOR BEHIND: wrote {self.rate:,.0f}/s"
        if self.late_ms > _LATE_MS:
            return f"generator late by up to {self.late_ms:.0f} ms"
        return ""


class Generator:
    """The generator process."""

    def __init__(self, bootstrap: str, topic: str, rate: float, seconds: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, bootstrap, topic, str(rate), str(seconds)],
            stdout=subprocess.PIPE,
        )

    def is_running(self) -> bool:
        return self._process.poll() is None

    def result(self) -> Generated:
        """Wait for its end, and return what it wrote."""
        output, _ = self._process.communicate(timeout=_WAIT_S)
        return Generated(**json.loads(output))

    def stop(self) -> None:
        if self.is_running():
            self._process.kill()
            self._process.communicate()


def generate(bootstrap: str, topic: str, rate: float, seconds: float) -> Generated:
    """Write events at a rate for so many seconds."""
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
        raise TimeoutError("the broker does not accept the events")
    return Generated(done, ended, done / max(spent, seconds), rate, late * 1000)


if __name__ == "__main__":
    bootstrap_, topic_, rate_, seconds_ = sys.argv[1:]
    print(json.dumps(asdict(generate(bootstrap_, topic_, float(rate_), float(seconds_)))))
