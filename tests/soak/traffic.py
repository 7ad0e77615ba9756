"""The traffic of the soak: the simulated fleet, and random logs with everything that goes wrong.

Half of the events are the fleet's. The others are random logs of the core's tests, one after the
other, each with its own ids, with streams that fall asleep and with very late repeats.
"""

import re
import threading
import time
from collections import Counter
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from consumer.core.message import Headers
from consumer.core.stream_time import BLOCK_BITS, REACH
from consumer.demo.fleet import Fleet
from consumer.telemetry.clock import SystemClock
from tests.unit.core.random_log import Draft, RandomLog

REQUESTS_PER_LOG: Final = 16
_EVENTS_PER_FLEET_REQUEST: Final = 7.0
_BEGIN_WITHIN_MS: Final = 3_000
_STEP_S: Final = 0.02
_FLUSH_S: Final = 60.0
_LAST_BLOCKS: Final = REACH + 3
_REQUEST_ID: Final = re.compile(rb'"request_id":"([^"]+)"')


class FieldLog(RandomLog):
    """A random log whose ids start at a given number; its drafts have no offsets yet."""

    def __init__(self, seed: int, first_id: int) -> None:
        self._first_id = first_id
        super().__init__(seed, REQUESTS_PER_LOG)

    @property
    def drafts(self) -> list[Draft]:
        """The events, each with its milliseconds after the start of the log."""
        return self._drafts

    def _request(self, number: int, begin: int) -> None:
        super()._request(self._first_id + number, begin % _BEGIN_WITHIN_MS)

    def _disturbed(self, drafts: list[Draft], sequenced: bool) -> list[Draft]:
        """Let streams sleep beyond the idle timeout, and repeat events beyond the window."""
        if len(drafts) > 1 and self._hazard("a stream that falls asleep", 0.02):
            awake = self._random.randrange(1, len(drafts))
            nap = self._random.randrange(8_000, 16_000)
            late = [(at + nap, value, headers) for at, value, headers in drafts[awake:]]
            drafts = [*drafts[:awake], *late]
        disturbed = super()._disturbed(drafts, sequenced)
        at, value, headers = self._random.choice(drafts)
        if b'"body":[' not in value and self._hazard("a very late duplicate", 0.03):
            disturbed.append((at + self._random.randrange(9_000, 25_000), value, headers))
        return disturbed

    def _lay_out(self) -> None:
        """Leave offsets and timestamps to the topic."""


class Traffic:
    """A producer in its own thread, which sends until `finish`.

    Args:
        bootstrap: bootstrap servers.
        topic: input topic.
        partitions: number of its partitions.
        seed: seed of the traffic.
        rate: events per second.

    Attributes:
        sent: number of events.
        hazards: how often each hazard occurred.
        failures: deliveries that the cluster refused; none is expected.

    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int, rate: float) -> None:
        self.sent = 0
        self.hazards: Counter[str] = Counter()
        self.failures: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._random = Random(seed)
        self._rate = rate / 2
        self._due: list[tuple[int, int, bytes, Headers]] = []
        self._numbers = count()
        self._first_ids = count(0, REQUESTS_PER_LOG)
        self._drawn = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 20,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )
        # Timestamps follow the monotonic clock.
        self._began, self._began_ms = time.monotonic(), SystemClock().wall()
        requests_per_second = self._rate / _EVENTS_PER_FLEET_REQUEST
        self._fleet = Fleet(seed=seed, rate=requests_per_second, start=self._began_ms)
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")
        self._thread.start()

    def finish(self, timeouts_ms: int) -> None:
        """End the traffic, and let stream time pass all timeouts in every partition.

        The stream time then closes every open request. The wall clock, which a second pass cannot
        repeat, would close the requests of a silent partition.
        """
        self.abandon()
        now = self._now_ms()
        for number in range(self._partitions):
            # The block after that of the last events must end first, because it gives their time.
            for stamp, blocks in ((now, 2), (now + timeouts_ms, _LAST_BLOCKS)):
                for late in range(blocks << BLOCK_BITS):
                    self._send(None, None, [], stamp + late, partition=number)
        if left := self._producer.flush(_FLUSH_S):
            self.failures.append(f"{left} events were not acknowledged in {_FLUSH_S:.0f} s")

    def abandon(self) -> None:
        """End the traffic at once."""
        self._finishing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._finishing.wait(_STEP_S):
            now = self._now_ms()
            while self._drawn < self._rate * (now - self._began_ms) / 1000:
                self._draw_log(now)
            while self._due and self._due[0][0] <= now:
                at, _, value, headers = heappop(self._due)
                named = _REQUEST_ID.search(value)
                self._send(value, named and named[1], headers, at)
            for message in self._fleet.due_by(now):
                self.hazards[f"fleet: {message.kind}"] += 1
                self._send(message.value, message.key, list(message.headers), message.timestamp)
            self._producer.poll(0)

    def _draw_log(self, at: int) -> None:
        log = FieldLog(self._random.getrandbits(32), next(self._first_ids))
        self.hazards += log.hazards
        self._drawn += len(log.drafts)
        for after, value, headers in log.drafts:
            heappush(self._due, (at + after, next(self._numbers), value, headers))

    def _now_ms(self) -> int:
        return self._began_ms + round((time.monotonic() - self._began) * 1000)

    def _send(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp: int,
        *,
        partition: int = -1,
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    partition,
                    headers=headers,
                    timestamp=timestamp,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(_STEP_S)
            else:
                self.sent += 1
                return

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failures.append(error.str())
