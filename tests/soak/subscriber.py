"""A subscriber of the output topics while the soak runs: committed messages and their arrival."""

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


class Delivered(Struct, frozen=True):
    """A message of an output topic, and the monotonic second at which it arrived."""

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


class Subscriber:
    """Reads topics from their beginning, under read_committed, in its own thread.

    Attributes:
        delivered: the messages so far.

    """

    def __init__(self, bootstrap: str, *topics: str) -> None:
        self.delivered: list[Delivered] = []
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
        self._positions = {
            (topic, number): 0 for topic in topics for number in known[topic].partitions
        }
        self._consumer.assign([TopicPartition(*one, OFFSET_BEGINNING) for one in self._positions])
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="subscriber")
        self._thread.start()

    def finish(self) -> list[Delivered]:
        """Read up to the present ends of the topics, and return all committed messages."""
        deadline = time.monotonic() + _END_S
        try:
            ends = self._ends()
            while any(self._positions[one] < end for one, end in ends.items()):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the ends {ends} were not reached: {self._positions}")
                time.sleep(_POLL_S)
        finally:
            self.close()
        return self.delivered

    def close(self) -> None:
        """End the thread."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join()
            self._consumer.close()

    def longest_silence(self, topic: str) -> tuple[float, float]:
        """Return the longest time between messages of a topic, and the second it began at."""
        times = [one.arrived for one in self.delivered if one.topic == topic]
        lengths = ((after - before, before) for before, after in pairwise(times))
        return max(lengths, default=(float("inf"), 0.0))

    def _ends(self) -> dict[tuple[str, int], int]:
        """Return where the topics end, in a consumer of its own: a busy one answers late.

        Transactions that brokers have not marked yet count, because a commit returns before that.
        """
        asking = Consumer({**self._config, "isolation.level": "read_uncommitted"})
        try:
            return {
                one: asking.get_watermark_offsets(TopicPartition(*one), timeout=_REQUEST_S)[1]
                for one in self._positions
            }
        finally:
            asking.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            for message in self._consumer.consume(1000, _POLL_S):
                partition = (message.topic() or "", message.partition() or 0)
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    self._positions[partition] = offset + 1
                    self._keep(message)
                elif error.code() == _PARTITION_EOF:
                    # It lies above the markers of transactions, which are not messages.
                    self._positions[partition] = offset
                elif error.fatal():
                    raise KafkaException(error)

    def _keep(self, message: Any) -> None:
        self.delivered.append(
            Delivered(
                message.topic(),
                message.key(),
                message.value(),
                message.headers() or [],
                message.timestamp()[1],
                time.monotonic(),
            )
        )
