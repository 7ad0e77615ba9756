"""One process from its first event to its last record: time, CPU, memory, and correctness."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from tests.bench.peers.bare import ENDED
from tests.bench.peers.job import BEGUN
from tests.bench.runs import Json, Usage, usage
from tests.kafka.server.cluster import KafkaCluster
from tests.paths import ROOT

_BEGIN_S: Final = 60
_STALL_S: Final = 60  # Without a new record, the measurement ends.
_STOP_S: Final = 30

Seen = list[tuple[bytes | None, bytes | None]]  # Keys and values.


@dataclass(frozen=True)
class Contender:
    """A program to measure; its command and environment may contain `{target}` and `{group}`.

    Attributes:
        name: its name in the table.
        command: its command line.
        environment: variables added to the environment.
        begun: the line on standard error at which its time starts.
        publishes: whether its time ends with its last record, not with a line.

    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    begun: str = BEGUN
    publishes: bool = True


@dataclass(frozen=True)
class PeerRun:
    """One repetition."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    verdict: str


class _Process:
    """A program in its own directory, with its standard error in a file."""

    def __init__(self, contender: Contender, target: str, group: str) -> None:
        self._name = contender.name
        self._directory = Path(tempfile.mkdtemp())
        self._log = self._directory / "stderr"
        names = {"target": target, "group": group}
        added = {name: value.format(**names) for name, value in contender.environment.items()}
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                [part.format(**names) for part in contender.command],
                env={**os.environ, "PYTHONPATH": str(ROOT), **added},
                cwd=self._directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        self._usage = Usage(0, 0, 0)

    def wait_for(self, line: str, timeout: float) -> None:
        """Wait until the program has written this line."""
        deadline = time.perf_counter() + timeout
        while line not in self._log.read_text(errors="replace"):
            if time.perf_counter() > deadline or not self.is_alive():
                raise RuntimeError(f"{self._name} did not write {line!r}:\n{self.last_words()}")
            time.sleep(0.002)

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def usage(self) -> Usage:
        """Return its usage so far; for a dead process, as of the last call."""
        if self.is_alive():
            self._usage = usage(self._popen.pid)
        return self._usage

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """Terminate the program, and remove its directory."""
        self._popen.terminate()
        try:
            self._popen.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.communicate()
        shutil.rmtree(self._directory)


def measure(
    kafka: KafkaCluster, contender: Contender, partitions: int, expected: Mapping[str, Json]
) -> PeerRun:
    """Run a contender over the whole input topic, into its own output topic."""
    target = f"records-{uuid.uuid4()}"
    kafka.create_topic(target, partitions=partitions)
    reader = _reader(kafka.bootstrap_servers, target, partitions)
    process = _Process(contender, target, str(uuid.uuid4()))
    try:
        process.wait_for(contender.begun, _BEGIN_S)
        start, before = time.perf_counter(), process.usage()
        if contender.publishes:
            seen, end = _read(reader, process, len(expected))
        else:
            process.wait_for(ENDED, _STALL_S)
            seen, end = [], time.perf_counter()
        after, died = process.usage(), not process.is_alive()
        if died:
            print(process.last_words(), file=sys.stderr)
    finally:
        process.stop()
    seen += _rest(reader)
    reader.close()
    kafka.delete_topic(target)
    verdict = judge(seen, expected) if contender.publishes else "-"
    return PeerRun(
        seconds=end - start,
        cpu_seconds=after.cpu_seconds - before.cpu_seconds,
        peak_mib=after.peak_mib,
        verdict=f"DIED, {verdict}" if died else verdict,
    )


def expected_records(bootstrap: str, topic: str, partitions: int, events: int) -> dict[str, Json]:
    """Return the members that each record must have, by request id."""
    reader = _reader(bootstrap, topic, partitions)
    expected = {}
    while events > 0:
        for message in reader.consume(5000, 1):
            events -= 1
            event = json.loads(message.value() or b"")
            if event["final"]:
                expected[event["request_id"]] = _expected(event)
    reader.close()
    return expected


def judge(seen: Seen, expected: Mapping[str, Json]) -> str:
    """Return `right`, or the numbers of missing, repeated and different records."""
    times: Counter[str] = Counter()
    different = 0
    for key, value in seen:
        record = json.loads(value or b"{}")
        request_id = str(record.get("request_id"))
        times[request_id] += 1
        wanted = expected.get(request_id, {"request_id": None})
        same = all(record.get(name) == member for name, member in wanted.items())
        different += not same or key != request_id.encode()
    faults = {
        "missing": len(expected.keys() - times.keys()),
        "repeated": sum(count - 1 for count in times.values()),
        "different": different,
    }
    text = ", ".join(f"{count} {fault}" for fault, count in faults.items() if count)
    return f"WRONG: {text}" if text else "right"


def _expected(event: Json) -> Json:
    body = event["body"]
    numbers = body["metrics"]["speculative_decoding"]
    histogram = numbers["acceptance_histogram"]
    return {
        "request_id": event["request_id"],
        "response_id": body["id"],
        "engine": "vllm",
        "model": body["model"],
        "num_spec_steps": numbers["num_spec_steps"],
        "num_accepted_draft_tokens": numbers["num_accepted_draft_tokens"],
        "num_draft_tokens": numbers["num_draft_tokens"],
        "mean_acceptance_length": numbers["mean_acceptance_length"],
        "acceptance_histogram": {str(n): steps for n, steps in enumerate(histogram) if steps},
    }


def _reader(bootstrap: str, topic: str, partitions: int) -> Consumer:
    # Reads from the beginning of the topic, committed records only.
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.queue.backoff.ms": 20}
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    return reader


def _read(reader: Consumer, process: _Process, wanted: int) -> tuple[Seen, float]:
    """Return up to so many records, and the time at which the last one arrived."""
    seen: Seen = []
    last = time.perf_counter()
    while len(seen) < wanted and process.is_alive():
        messages = reader.consume(500, 0.02)
        now = time.perf_counter()
        if messages:
            seen += [(message.key(), message.value()) for message in messages]
            last = now
        elif now - last > _STALL_S:
            break
    return seen, last


def _rest(reader: Consumer) -> Seen:
    """Return records after the last expected one; there should be none."""
    return [(message.key(), message.value()) for message in reader.consume(10_000, 1)]
