"""The demo: a simulated fleet, an embedded broker, the service as a child process, and a view."""

import math
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TextIO

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from rich.console import Console

from consumer.demo.embedded_broker import PARTITIONS, QUIET, EmbeddedBroker
from consumer.demo.fleet import Fleet
from consumer.demo.service import DemoService
from consumer.demo.totals import DemoTotals
from consumer.demo.view import (
    IDLE_TIMEOUT,
    ProgressView,
    console_for,
    print_line,
    show_introduction,
    show_samples,
    show_summary,
)
from consumer.telemetry.clock import Clock, SystemClock
from schemas import DeadLetter, PublishedRecord

INPUT_TOPIC: Final = "serving-responses"
OUTPUT_TOPIC: Final = "acceptance-records"
DEAD_LETTER_TOPIC: Final = "acceptance-dead-letters"
REQUESTS_PER_SECOND: Final = 40.0
SERVICE_SETTINGS: Final[Mapping[str, str]] = {
    "ACCEPTANCE_TOPICS": INPUT_TOPIC,
    "ACCEPTANCE_START": "earliest",
    "ACCEPTANCE_DELIVERY": "at_least_once",
    "ACCEPTANCE_LOG_FORMAT": "json",
    "ACCEPTANCE_HTTP_ADDRESS": "off",
    "ACCEPTANCE_COMMIT_INTERVAL": "250ms",
    "ACCEPTANCE_IDLE_TIMEOUT": IDLE_TIMEOUT,
    "ACCEPTANCE_DUPLICATE_WINDOW": "5s",
}
"""Environment of the service; its output topics have their default names, which are those above."""

_PRODUCER: Final[Mapping[str, str | int]] = {
    "linger.ms": 5,
    "message.timeout.ms": 10_000,
    "partitioner": "murmur2_random",
}
_CONSUMER: Final[Mapping[str, str | int | bool]] = {
    "group.id": "acceptance-demo-view",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 50,
}
_decode_record: Final = msgspec.json.Decoder(PublishedRecord).decode
_decode_letter: Final = msgspec.json.Decoder(DeadLetter).decode

_FLUSH_S: Final = 10.0
_DRAIN_S: Final = 5.0
_DRAIN_INTERRUPTED_S: Final = 3.0
# A consumer group takes a few seconds to form; a very short demo waits for that at its end.
_FIRST_RECORDS_S: Final = 12.0
_LOG_LINES: Final = 20


def run_demo(
    *,
    duration: float | None = None,
    rate: float = REQUESTS_PER_SECOND,
    seed: int = 1,
    stdout: TextIO | None = None,
) -> int:
    """Run the demo until Ctrl-C, or for `duration` seconds, and return the exit code.

    Args:
        duration: seconds of traffic; None for no end.
        rate: requests per second.
        seed: seed of the traffic.
        stdout: where to print; by default standard output.

    Returns:
        0, or 1 if the service failed.

    Raises:
        ValueError: the duration or the rate is not a positive number.

    """
    if duration is not None and not duration > 0:
        raise ValueError(f"the duration {duration} is not a positive number of seconds")
    clock, totals = SystemClock(), DemoTotals()
    console = console_for(stdout or sys.stdout)
    outputs = (OUTPUT_TOPIC, DEAD_LETTER_TOPIC)
    show_introduction(console, topic=INPUT_TOPIC, outputs=outputs, duration=duration)
    with EmbeddedBroker() as broker, _interrupted() as interrupted:
        bootstrap = broker.bootstrap_servers
        broker.create_topics((INPUT_TOPIC, *outputs))
        fleet = Fleet(seed=seed, rate=rate, start=clock.wall())
        service = DemoService(bootstrap, SERVICE_SETTINGS)
        failed = None
        try:
            with ProgressView(console, totals) as view:
                demo = _Demo(bootstrap, fleet, service, view, totals, clock)
                demo.run(duration, interrupted)
                failed = service.exit_code()
                demo.close()
        finally:
            stopped = service.stop()
    if failed is not None or stopped:
        _show_failure(console, service, stopped if failed is None else failed)
        return 1
    show_samples(console, totals)
    show_summary(console, totals)
    return 0


class _Demo:
    """Sends the fleet's messages, reads what the service publishes, and shows both."""

    def __init__(
        self,
        bootstrap: str,
        fleet: Fleet,
        service: DemoService,
        view: ProgressView,
        totals: DemoTotals,
        clock: Clock,
    ) -> None:
        self._fleet = fleet
        self._service = service
        self._view = view
        self._totals = totals
        self._clock = clock
        self._producer = Producer({"bootstrap.servers": bootstrap, **_PRODUCER}, logger=QUIET)
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **_CONSUMER}, logger=QUIET)
        self._consumer.assign(
            [
                TopicPartition(topic, partition, OFFSET_BEGINNING)
                for topic in (OUTPUT_TOPIC, DEAD_LETTER_TOPIC)
                for partition in range(PARTITIONS)
            ]
        )

    def close(self) -> None:
        """Close the clients."""
        self._producer.close()
        self._consumer.close()

    def run(self, duration: float | None, interrupted: threading.Event) -> None:
        """Run until the end, then wait a few seconds for outstanding records.

        Returns early if the service ends.
        """
        started = self._clock.monotonic()
        end = math.inf if duration is None else started + duration
        while not interrupted.is_set() and self._clock.monotonic() < end:
            self._send(self._clock.wall())
            if not self._read():
                return
        self._fleet.close()
        self._send(math.inf)
        self._producer.flush(_FLUSH_S)
        if interrupted.is_set():
            deadline = self._clock.monotonic() + _DRAIN_INTERRUPTED_S
        else:
            deadline = max(self._clock.monotonic() + _DRAIN_S, started + _FIRST_RECORDS_S)
        while not self._totals.is_complete and self._clock.monotonic() < deadline:
            if not self._read():
                return

    def _send(self, until: float) -> None:
        """Send the messages that are due; on a machine that cannot keep up, they are late."""
        for message in self._fleet.due_by(until):
            while True:
                try:
                    self._producer.produce(
                        INPUT_TOPIC,
                        key=message.key,
                        value=message.value,
                        headers=list(message.headers),
                        timestamp=message.timestamp,
                        on_delivery=_raise_if_failed,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._totals.add_message(message)
        self._producer.poll(0)

    def _read(self) -> bool:
        """Count what was published, show it, and return whether the service runs."""
        for message in self._consumer.consume(500, timeout=0.1):
            if (error := message.error()) is not None:
                if error.fatal():
                    raise KafkaException(error)
                continue
            try:
                if message.topic() == OUTPUT_TOPIC:
                    self._totals.add_record(_decode_record(message.value() or b""))
                else:
                    self._totals.add_dead_letter(_decode_letter(message.value() or b""))
            except msgspec.MsgspecError:
                self._totals.unreadable += 1
        self._view.update(self._clock.monotonic())
        return self._service.exit_code() is None


def _show_failure(console: Console, service: DemoService, code: int) -> None:
    how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    print_line(console, f"The service ended with {how}. Its log: {service.log}")
    with service.log.open(encoding="utf-8", errors="replace") as log:
        for line in deque(log, maxlen=_LOG_LINES):
            print_line(console, f"  {line.rstrip()}")


@contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """Set an event at the first signal to end; the second signal acts as it did before."""
    event = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        event.set()
        signal.signal(number, previous[number])

    signals: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous: dict[int, Any] = {number: signal.signal(number, handle) for number in signals}
    try:
        yield event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _raise_if_failed(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        raise KafkaException(error)
