"""Fixtures of the tests with real software, and the summary of what ran."""

import os
import socket
import subprocess
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from consumer.core.message import CapturedMessage, Headers
from tests.field import http_to_kafka, programs
from tests.field.answers import Answers, Json, Numbers, in_order
from tests.field.captures import Capture, keep, today
from tests.field.fake_server import FakeServer, serve
from tests.kafka.harness import SECONDS, Bench, benches, eventually
from tests.kafka.server.cluster import KafkaCluster

_KEEP: Final = "FIELD_CAPTURES"
"""If this variable is set, what the software wrote is kept in tests/samples/field."""

_SILENCE_S: Final = 8.0
"""How long the last record may take after everything was read: more than the idle timeout."""

_RESULTS: Final = pytest.StashKey[dict[str, list[str]]]()


class Topic:
    """A topic that real software writes to, and the real service that reads it."""

    def __init__(self, bench: Bench, capture: str, program: str) -> None:
        self.bench = bench
        self.bootstrap = bench.bootstrap
        self._capture = capture
        self._program = program

    @property
    def name(self) -> str:
        return self.bench.input

    def must_give(
        self,
        expected: Sequence[Numbers],
        *,
        messages: int,
        without_record: int = 0,
        dead_letters: Sequence[str] = (),
        **settings: str,
    ) -> list[Json]:
        """Hold what the service makes of the messages against what is known; return the records.

        Args:
            expected: the numbers of each record.
            messages: how many messages the software writes.
            without_record: how many requests end without a record.
            dead_letters: reasons of what the service must refuse.
            settings: settings of the service.

        """
        capture = Capture(
            name=self._capture,
            program=self._program,
            version=programs.version(self._program),
            date=today(),
            settings=settings,
            records=in_order(expected),
            without_record=without_record,
            dead_letters=list(dead_letters),
        )
        log = self._read(messages)
        if os.environ.get(_KEEP):
            keep(capture, log, self.bench.directory)
        service = self.bench.start(idle_timeout="2s", log_level="debug", **settings)
        self.bench.wait_until_committed()
        letters = [letter.json["reason"] for letter in self.bench.letters()]
        assert letters == capture.dead_letters
        count = len(expected) + without_record
        with suppress(AssertionError):  # The comparison says more.
            eventually(lambda: len(service.lines("request_finished")) >= count, "", _SILENCE_S)
        assert service.stop() == 0
        records = [record.json for record in self.bench.records()]
        assert in_order(map(Numbers.of, records)) == capture.records
        finished = [line["outcome"] for line in service.lines("request_finished")]
        assert len(finished) == count, finished
        return records

    def send(self, value: str) -> None:
        """Send a message as a program would that ships lines as they are."""
        self.bench.send(value.encode())
        self.bench.flush()

    def _read(self, count: int) -> list[CapturedMessage]:
        bench = self.bench
        eventually(lambda: sum(bench.ends().values()) >= count, f"{count} messages", 2 * SECONDS)
        consumer = Consumer({"bootstrap.servers": bench.bootstrap, "group.id": "captures"})
        consumer.assign([TopicPartition(bench.input, 0, OFFSET_BEGINNING)])
        read = consumer.consume(count, timeout=SECONDS)
        consumer.close()
        return [
            CapturedMessage(
                at_offset=message.offset() or 0,
                the_key=message.key(),
                the_value=message.value(),
                the_headers=cast("Headers | None", message.headers()),
                timestamp_type=message.timestamp()[0],
                timestamp_ms=message.timestamp()[1],
            )
            for message in read
        ]


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Path:
    """Return where the software of the test lies, or skip the test by its name."""
    try:
        return programs.directory(_program(request.node))
    except programs.Missing as error:
        pytest.skip(str(error))


@pytest.fixture
def topic(
    program: Path,  # noqa: ARG001 - First, because the broker takes long to start.
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> Iterator[Topic]:
    kafka: KafkaCluster = request.getfixturevalue("kafka")
    for make in benches(kafka, tmp_path):
        yield Topic(make(1), _capture(request.node), _program(request.node))


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serve() as server:
        yield server


@pytest.fixture
def bridge(topic: Topic) -> Iterator[str]:
    """Return the URL of an HTTP endpoint that puts requests on the topic."""
    with http_to_kafka.bridge(topic.bootstrap, topic.name) as url:
        yield url


def until_open(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a program listens."""
    host, port = address.rsplit(":", 1)

    def look() -> bool:
        assert process.poll() is None, f"ended with {process.returncode}"
        with suppress(OSError), socket.create_connection((host, int(port)), 1):
            return True
        return False

    eventually(look, f"a listener at {address}", 2 * SECONDS)


def free_port() -> int:
    """Return a port for a program that cannot choose one itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start programs in the background; a test that fails shows what they logged."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str | Path, **variables: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"program-{len(started)}.log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    [str(part) for part in command],
                    env=os.environ | variables,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=tmp_path,
                )
            )
        return started[-1]

    yield run
    for number, process in enumerate(started):
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        print((tmp_path / f"program-{number}.log").read_text(errors="replace")[-4000:])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.get_closest_marker("field") and (report.when == "call" or report.skipped):
        results = item.config.stash.setdefault(_RESULTS, {})
        results.setdefault(_program(item), []).append(report.outcome)
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """List the software that ran, with its version, and what was not there."""
    terminalreporter.section("real software")
    for name, outcomes in sorted(config.stash.get(_RESULTS, {}).items()):
        try:
            counts = ", ".join(f"{outcomes.count(one)} {one}" for one in sorted(set(outcomes)))
            terminalreporter.line(f"{name} {programs.version(name)}: {counts}")
        except programs.Missing:
            terminalreporter.line(f"{name}: NOT TESTED, it is not installed")


def _program(item: pytest.Item) -> str:
    marker = item.get_closest_marker("field")
    assert marker is not None
    return str(marker.args[0])


def _capture(item: pytest.Item) -> str:
    """Return the name of a test's capture: that of its module, and that of its case."""
    module = item.path.stem.removeprefix("test_")
    case = item.name.removeprefix("test_").rstrip("]").replace("[", "_")
    return f"{module}_{case}"
