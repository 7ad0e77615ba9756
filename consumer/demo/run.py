"""The demo from end to end: a broker, a fleet, the real service as a child process, and a view.

The main thread owns the view, the tally and the truth; one thread produces what the fleet logs.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Final, Protocol, Self, TextIO

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
from consumer.demo.fleet import INPUT_TOPIC, Fleet, FleetMessage
from consumer.demo.view import (
    IDLE_TIMEOUT,
    Tally,
    Truth,
    View,
    console_for,
    say,
    show_introduction,
    show_samples,
    show_summary,
    view_for,
)
from consumer.telemetry.clock import Clock, SystemClock
from schemas import DeadLetter, PublishedRecord

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
"""Environment of the service; the default names of its output topics are the ones above."""

_SETTLE_SECONDS: Final = 5.0
_SETTLE_SECONDS_INTERRUPTED: Final = 3.0
# A consumer group takes a few seconds to form; a very short demo waits for that at its end.
_FIRST_RECORDS_SECONDS: Final = 12.0
_STOP_SECONDS: Final = 8.0
_LINES_SHOWN: Final = 20


class ServiceHandle(Protocol):
    """A running service.

    Attributes:
        log: the file that it writes its log to.

    """

    log: Path

    def exit_code(self) -> int | None:
        """Return the exit code, None while it runs."""
        ...

    def stop(self) -> int:
        """Stop it, and return its exit code: 0 if it ended as it should."""
        ...


def run_demo(
    *,
    duration: float | None = None,
    rate: float = REQUESTS_PER_SECOND,
    seed: int = 1,
    service: "Callable[[str], ServiceHandle] | None" = None,
    stdout: TextIO | None = None,
) -> int:
    """Run the demo until Ctrl-C, or for `duration` seconds; return the exit code.

    Args:
        duration: seconds of traffic; None for no end.
        rate: requests per second.
        seed: of the traffic.
        service: starts the service for the bootstrap servers given; by default the real one, as a
            child process.
        stdout: where to show the demo; by default standard output.

    Returns:
        0, or 1 if the service died or did not end as it should.

    Raises:
        ValueError: the duration or the rate is not a positive number.

    """
    if duration is not None and not duration > 0:
        raise ValueError(f"a demo cannot last {duration} seconds")
    clock = SystemClock()
    console = console_for(stdout or sys.stdout)
    tally, truth = Tally(), Truth()
    outputs = (OUTPUT_TOPIC, DEAD_LETTER_TOPIC)
    show_introduction(console, topic=INPUT_TOPIC, outputs=outputs, duration=duration)
    with EmbeddedBroker() as broker, _interrupted() as interrupted:
        bootstrap = broker.bootstrap_servers
        broker.create_topics((INPUT_TOPIC, *outputs))
        fleet = Fleet(seed=seed, rate=rate, start=clock.wall())
        running = (service or start_service)(bootstrap)
        exit_code = None
        try:
            with (
                _Reader(bootstrap) as reader,
                _Producing(bootstrap, fleet, clock) as producing,
                view_for(console, tally, truth) as view,
            ):
                demo = _Demo(running, producing, reader, view, clock, tally, truth)
                demo.run(duration, interrupted)
                exit_code = running.exit_code()
        finally:
            stopped = running.stop()
    if exit_code is not None or stopped != 0:
        _show_death(console, running, stopped if exit_code is None else exit_code)
        return 1
    show_samples(console, tally)
    show_summary(console, tally, truth)
    return 0


@dataclass
class _Demo:
    """Moves what was sent and what came out to the tally, the truth and the view."""

    service: ServiceHandle
    producing: "_Producing"
    reader: "_Reader"
    view: View
    clock: Clock
    tally: Tally
    truth: Truth

    def run(self, duration: float | None, interrupted: threading.Event) -> None:
        """Run until the end, then wait a little for what is still on its way.

        Returns early if the service dies.
        """
        started = self.clock.monotonic()
        while not interrupted.is_set() and not self._over(started, duration):
            if not self._step():
                return
        self.producing.finish()
        patience = _SETTLE_SECONDS_INTERRUPTED if interrupted.is_set() else _SETTLE_SECONDS
        deadline = self.clock.monotonic() + patience
        if not interrupted.is_set():
            deadline = max(deadline, started + _FIRST_RECORDS_SECONDS)
        while not self._settled() and self.clock.monotonic() < deadline and self._step():
            pass

    def _over(self, started: float, duration: float | None) -> bool:
        return duration is not None and self.clock.monotonic() >= started + duration

    def _step(self) -> bool:
        """Take in what there is; return whether the service is still there."""
        for message in self.producing.sent():
            self.tally.sent(message)
            self.truth.sent(message)
        for output in self.reader.read():
            match output:
                case PublishedRecord():
                    self.tally.published(output)
                    self.truth.published(output)
                case DeadLetter():
                    self.tally.dead_letter(output)
                case None:
                    self.tally.unreadable += 1
        self.view.update(self.clock.monotonic())
        return self.service.exit_code() is None

    def _settled(self) -> bool:
        return (
            self.producing.done()
            and not self.truth.missing()
            and self.tally.dead_letters.total() >= self.truth.dead_letters.total()
        )


def _show_death(console: Console, service: ServiceHandle, code: int) -> None:
    how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    say(console, f"The service ended with {how}. Its log: {service.log}")
    with service.log.open(encoding="utf-8", errors="replace") as log:
        for line in deque(log, maxlen=_LINES_SHOWN):
            say(console, f"  {line.rstrip()}")


@contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """Turn the first signal to end into an event; the second does what it always does."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event  # Signals are the main thread's alone.
        return

    def remember(number: int, _frame: FrameType | None) -> None:
        event.set()
        signal.signal(number, previous[number])

    signals: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous: dict[int, Any] = {number: signal.signal(number, remember) for number in signals}
    try:
        yield event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


# --- The service


def start_service(bootstrap: str) -> "ChildService":
    """Start the real service against the brokers given."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("ACCEPTANCE_")}
    environment = {**mine, "KAFKA_BOOTSTRAP_SERVERS": bootstrap, **SERVICE_SETTINGS}
    return ChildService([sys.executable, "-m", "consumer", "run"], environment)


class ChildService:
    """A child process whose output goes to a temporary file, kept only if the child dies.

    Args:
        command: the program and its arguments.
        environment: its whole environment.

    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        descriptor, path = tempfile.mkstemp(prefix="acceptance-demo-", suffix=".log")
        self.log = Path(path)
        with os.fdopen(descriptor, "wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the command is ours.
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches the whole foreground group; the service is to get its SIGTERM when
                # the demo has read what it published.
                process_group=0,
            )

    def exit_code(self) -> int | None:
        """Return the exit code, None while the child runs."""
        return self._process.poll()

    def stop(self) -> int:
        """Ask the child to end, make it end if it does not, and return its exit code."""
        died = self._process.poll() is not None
        if not died:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:  # After a second Ctrl-C too; a child that has ended does not feel it.
                self._process.kill()
        code = self._process.wait()
        if not died and code in {0, -signal.SIGTERM}:  # It may be told before it listens.
            self.log.unlink()
            return 0
        return code


# --- Kafka on both sides of it


class _Producing:
    """Produces the fleet's messages when they are due, in a thread of its own."""

    def __init__(self, bootstrap: str, fleet: Fleet, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 5,
                "message.timeout.ms": 10_000,
                "partitioner": "murmur2_random",
            },
            logger=QUIET,
        )
        self._sent: SimpleQueue[FleetMessage] = SimpleQueue()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()
        self._thread.join()
        self._producer.close()

    def finish(self) -> None:
        """Begin no more requests, and send the rest of those that have begun at once."""
        self._fleet.close()
        self._hurry.set()

    def done(self) -> bool:
        """Tell whether everything was sent and taken note of."""
        return not self._thread.is_alive() and self._sent.empty()

    def sent(self) -> Iterator[FleetMessage]:
        """Yield what was produced since the last call.

        Raises:
            BaseException: whatever ended the thread.

        """
        if self._error is not None:
            raise self._error
        for _ in range(self._sent.qsize()):
            yield self._sent.get_nowait()

    def _run(self) -> None:
        try:
            for message in self._fleet:
                # Where the machine cannot keep up, everything is simply late.
                self._hurry.wait(max(0.0, (message.timestamp - self._clock.wall()) / 1000))
                self._produce(message)
                self._sent.put(message)
            self._producer.flush(10)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread.
            self._error = error

    def _produce(self, message: FleetMessage) -> None:
        while True:
            try:
                self._producer.produce(
                    message.topic,
                    key=message.key,
                    value=message.value,
                    headers=list(message.headers),
                    timestamp=message.timestamp,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    @staticmethod
    def _delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise KafkaException(error)


class _Reader:
    """Reads both output topics from their beginning, as any subscriber could."""

    def __init__(self, bootstrap: str) -> None:
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": "acceptance-demo-view",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
        self._consumer = Consumer(settings, logger=QUIET)
        self._record = msgspec.json.Decoder(PublishedRecord)
        self._letter = msgspec.json.Decoder(DeadLetter)

    def __enter__(self) -> Self:
        self._consumer.assign(
            [
                TopicPartition(topic, partition, OFFSET_BEGINNING)
                for topic in (OUTPUT_TOPIC, DEAD_LETTER_TOPIC)
                for partition in range(PARTITIONS)
            ]
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._consumer.close()

    def read(self) -> Iterator[PublishedRecord | DeadLetter | None]:
        """Yield what came out since the last call; None for what is not what it should be."""
        for message in self._consumer.consume(500, timeout=0.1):
            if (error := message.error()) is not None:
                if error.fatal():
                    raise KafkaException(error)
                continue
            decoder = self._record if message.topic() == OUTPUT_TOPIC else self._letter
            try:
                yield decoder.decode(message.value() or b"")
            except msgspec.MsgspecError:
                yield None
