"""What a fleet logs while the soak runs: everything that goes wrong in the field, at a steady rate.

The traffic is made of the random logs of the core's tests, one after the other, each with ids of
its own, and with what those have no need for: SGLang's shapes, numbers that contradict each other,
requests beside responses, and repeats so late that nothing is known of the request any more.
"""

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from consumer.core.message import Headers
from consumer.core.stream_time import BLOCK_BITS
from consumer.telemetry.clock import SystemClock
from tests.unit.core.made import Json, chunk, cloudevent_headers, encode
from tests.unit.core.random_log import Draft, RandomLog

REQUESTS_PER_LOG: Final = 16
_BEGIN_WITHIN_MS: Final = 3_000
_STEP_S: Final = 0.02
_FLUSH_S: Final = 60.0
_LAST_BLOCKS: Final = 4
_REQUEST_ID: Final = re.compile(rb'"request_id":"([^"]+)"')
_REQUEST_TYPE: Final = "org.kubeflow.serving.inference.request"
_SGLANG_STATS: Final = {
    "spec_accept_rate": 0.31,
    "spec_accept_length": 2.575,
    "spec_num_correct_drafts": 62,
    "spec_num_proposed_drafts": 200,
    "spec_verify_ct": 40,
    "spec_correct_drafts_histogram": [10, 12, 8, 6, 4],
}
_USAGE: Final = {"prompt_tokens": 20, "completion_tokens": 103, "total_tokens": 123}

Bodies = list[tuple[Json, bool]]


class FieldLog(RandomLog):
    """A random log whose ids begin at a number of its own, as drafts that have no offsets yet."""

    def __init__(self, seed: int, first: int) -> None:
        self._first = first
        super().__init__(seed, REQUESTS_PER_LOG)

    @property
    def drafts(self) -> list[Draft]:
        """Return what is to be logged, each with the milliseconds after the log's beginning."""
        return self._drafts

    def _request(self, number: int, begin: int) -> None:
        number, begin = self._first + number, begin % _BEGIN_WITHIN_MS
        super()._request(number, begin)
        if self._hazard("a request beside its response", 0.05):
            headers = cloudevent_headers(id=f"q{number}", type=_REQUEST_TYPE)
            self._drafts.append((begin, encode({"model": "demo-8b", "messages": []}), headers))

    def _bodies(self, body_id: str, failing: bool) -> Bodies:
        if failing:
            return super()._bodies(body_id, failing)
        if self._hazard("SGLang, chat", 0.15):
            return self._sglang_chat(body_id)
        if self._hazard("SGLang, generate", 0.1):
            return self._sglang_generate(body_id)
        bodies = super()._bodies(body_id, failing)
        for body, _ in bodies:
            content = body.get("body")
            metrics = content.get("metrics") if isinstance(content, dict) else None
            if metrics and self._hazard("numbers that contradict each other", 0.03):
                metrics["speculative_decoding"]["num_spec_steps"] += 1
        return bodies

    def _sglang_chat(self, body_id: str) -> Bodies:
        """Stream as SGLang does: numbers and usage in chunks of their own."""
        around: Json = {"id": body_id, "object": "chat.completion.chunk", "choices": []}
        return [
            *(({"body": chunk(body_id)}, False) for _ in range(self._random.randrange(1, 8))),
            ({"body": {**around, "sglext": {"spec_tokens_details": _SGLANG_STATS}}}, False),
            ({"body": {**around, "usage": _USAGE}}, False),
            ({"body": "[DONE]"}, True),
        ]

    def _sglang_generate(self, body_id: str) -> Bodies:
        """Stream as SGLang's native endpoint does: each event repeats the text so far."""
        known: Json = {"id": body_id, "prompt_tokens": 20}
        going = [
            ({"body": {"text": "." * n, "meta_info": {**known, "finish_reason": None}}}, False)
            for n in range(1, self._random.randrange(2, 6))
        ]
        ended = {**known, **_SGLANG_STATS, "completion_tokens": 103}
        ended["finish_reason"] = {"type": "length", "length": 103}
        body = {"text": ".", "meta_info": ended}
        return [*going, ({"body": body}, False), ({"body": "[DONE]"}, True)]

    def _whole(self, number: int, begin: int) -> None:
        super()._whole(number, begin)
        _, value, headers = self._drafts[-1]
        if self._hazard("a whole response twice", 0.02):
            self._drafts.append((begin + 300, value, headers))

    def _disturbed(self, drafts: list[Draft], sequenced: bool) -> list[Draft]:
        """Let streams fall asleep beyond the idle timeout, and repeats come beyond the window."""
        if len(drafts) > 1 and self._hazard("a stream that falls asleep", 0.02):
            awake = self._random.randrange(1, len(drafts))
            nap = self._random.randrange(8_000, 16_000)
            drafts = [
                (at + nap * (number >= awake), value, headers)
                for number, (at, value, headers) in enumerate(drafts)
            ]
        disturbed = super()._disturbed(drafts, sequenced)
        at, value, headers = self._random.choice(drafts)
        if b'"body":[' not in value and self._hazard("a very late duplicate", 0.03):
            disturbed.append((at + self._random.randrange(9_000, 25_000), value, headers))
        return disturbed

    def _lay_out(self) -> None:
        """Leave offsets and timestamps to the topic."""


class Traffic:
    """A producer with a thread of its own, which sends until it is told to finish.

    Args:
        bootstrap: brokers.
        topic: input topic.
        partitions: how many it has.
        seed: what makes it this traffic.
        rate: events per second.

    Attributes:
        sent: how many events.
        hazards: how often each occurred.
        failures: deliveries that the cluster refused; none is expected.

    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int, rate: float) -> None:
        self.sent = 0
        self.hazards: Counter[str] = Counter()
        self.failures: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._random = Random(seed)
        self._rate = rate
        self._due: list[tuple[float, int, bytes, Headers]] = []
        self._numbers = count()
        self._first_ids = count(0, REQUESTS_PER_LOG)
        self._made = 0
        self._began = time.monotonic()
        self._began_wall = SystemClock().wall()
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
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")

    def start(self) -> None:
        """Start sending."""
        self._began, self._began_wall = time.monotonic(), SystemClock().wall()
        self._thread.start()

    def finish(self, timeouts_ms: int) -> None:
        """End the traffic, and let stream time pass all timeouts in every partition.

        What is open then is closed by stream time, and so by the log alone: a partition that falls
        silent is closed by the wall clock, which no second pass could tell again.
        """
        self._finishing.set()
        self._thread.join()
        now = self._stamp(time.monotonic() - self._began)
        for number in range(self._partitions):
            # First the block of the last events ends, since its end is their time.
            for stamp, blocks in ((now, 1), (now + timeouts_ms, _LAST_BLOCKS)):
                for late in range(blocks << BLOCK_BITS):
                    self._send(None, [], stamp + late, partition=number)
        left = self._producer.flush(_FLUSH_S)
        if left:
            self.failures.append(f"{left} events were not acknowledged in {_FLUSH_S:.0f} s")

    def abandon(self) -> None:
        """End the traffic at once."""
        self._finishing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._finishing.wait(_STEP_S):
            elapsed = time.monotonic() - self._began
            while self._made < self._rate * elapsed:
                self._begin_log(elapsed)
            for at, value, headers in self._due_by(elapsed):
                self._send(value, headers, self._stamp(at))
            self._producer.poll(0)

    def _begin_log(self, at: float) -> None:
        log = FieldLog(self._random.getrandbits(32), next(self._first_ids))
        self.hazards += log.hazards
        self._made += len(log.drafts)
        for after_ms, value, headers in log.drafts:
            heappush(self._due, (at + after_ms / 1000, next(self._numbers), value, headers))

    def _due_by(self, elapsed: float) -> Iterator[tuple[float, bytes, Headers]]:
        while self._due and self._due[0][0] <= elapsed:
            at, _, value, headers = heappop(self._due)
            yield at, value, headers

    def _stamp(self, at: float) -> int:
        """Return the timestamp of so many seconds after the beginning; the clock is steady."""
        return self._began_wall + round(at * 1000)

    def _send(
        self, value: bytes | None, headers: Headers, timestamp: int, *, partition: int = -1
    ) -> None:
        """Send an event, keyed by its request id if it has one."""
        named = _REQUEST_ID.search(value or b"")
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    named and named[1],
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
