"""What a subscriber sees while the soak runs: committed records and dead letters, and when."""

import threading
import time
from itertools import pairwise
from typing import Any, Final

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from msgspec import Struct

from consumer.core.message import Headers

_POLL_S: Final = 0.2
_REQUEST_S: Final = 30.0
_END_S: Final = 60.0
_PARTITION_EOF: Final = KafkaError._PARTITION_EOF


class Seen(Struct, frozen=True):
    """A message downstream, with the second at which it arrived."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Headers
    timestamp: int
    arrived: float

    @property
    def json(self) -> dict[str, Any]:
        content: dict[str, Any] = msgspec.json.decode(self.value)
        return content


class Downstream:
    """A reader of topics in a thread of its own, from their beginning, under read_committed.

    Attributes:
        seen: what has come so far.

    """

    def __init__(self, bootstrap: str, *topics: str) -> None:
        self.seen: list[Seen] = []
        self._config: Final = {
            "bootstrap.servers": bootstrap,
            "group.id": "downstream",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self._consumer = Consumer(self._config)
        known = self._consumer.list_topics(timeout=_REQUEST_S).topics
        self._reached = {
            (topic, number): 0 for topic in topics for number in known[topic].partitions
        }
        self._consumer.assign([TopicPartition(*one, OFFSET_BEGINNING) for one in self._reached])
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="downstream")
        self._thread.start()

    def finish(self) -> list[Seen]:
        """Read up to what is written by now, and return everything that is committed."""
        deadline = time.monotonic() + _END_S
        try:
            ends = self._ends()
            while any(self._reached[one] < end for one, end in ends.items()):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the ends {ends} were not reached: {self._reached}")
                time.sleep(_POLL_S)
        finally:
            self.close()
        return self.seen

    def close(self) -> None:
        """End the thread."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join()
            self._consumer.close()

    def longest_silence(self, topic: str) -> tuple[float, float]:
        """Return the longest time between messages of a topic, and the second it began at."""
        times = [one.arrived for one in self.seen if one.topic == topic]
        lengths = ((after - before, before) for before, after in pairwise(times))
        return max(lengths, default=(float("inf"), 0.0))

    def _ends(self) -> dict[tuple[str, int], int]:
        """Ask where messages end; a consumer that is being read would answer late.

        A commit returns before brokers have marked it: what is not decided yet counts as well.
        """
        asking = Consumer({**self._config, "isolation.level": "read_uncommitted"})
        try:
            return {
                one: asking.get_watermark_offsets(TopicPartition(*one), timeout=_REQUEST_S)[1]
                for one in self._reached
            }
        finally:
            asking.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            for message in self._consumer.consume(1000, _POLL_S):
                place = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    self._reached[place] = (message.offset() or 0) + 1
                    self._note(message)
                elif error.code() == _PARTITION_EOF:
                    # It lies above marks of transactions, which are no messages.
                    self._reached[place] = message.offset() or 0
                elif error.fatal():
                    raise KafkaException(error)

    def _note(self, message: Any) -> None:
        self.seen.append(
            Seen(
                message.topic(),
                message.key(),
                message.value(),
                message.headers() or [],
                message.timestamp()[1],
                time.monotonic(),
            )
        )
