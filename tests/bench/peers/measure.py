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
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from tests.bench.peers.bare import ENDED
from tests.bench.peers.job import BEGUN
from tests.kafka.server.cluster import KafkaCluster
from tests.paths import ROOT

_BEGIN_S: Final = 60
_STALL_S: Final = 60  # Without a new record; then there will be no more.
_STOP_S: Final = 30
_TICKS: Final = os.sysconf("SC_CLK_TCK")

Json = dict[str, Any]
Seen = list[tuple[bytes | None, bytes | None]]  # Keys and values.


@dataclass(frozen=True)
class Contender:
    """A program to measure, with `{target}` and `{group}` in what it is told.

    Attributes:
        name: for the table.
        command: its command line.
        environment: what is added to the environment.
        begun: what it writes to standard error when its time begins.
        publishes: whether it ends with its last record, not with a line of its own.

    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    begun: str = BEGUN
    publishes: bool = True


@dataclass(frozen=True)
class Run:
    """One repetition."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    verdict: str


@dataclass(frozen=True)
class _Usage:
    cpu_seconds: float
    peak_mib: float


class _Process:
    """A program in a directory of its own, with what it writes to standard error in a file."""

    def __init__(self, contender: Contender, target: str, group: str) -> None:
        self._name = contender.name
        self._directory = Path(tempfile.mkdtemp())
        self._log = self._directory / "stderr"
        told = {"target": target, "group": group}
        added = {name: value.format(**told) for name, value in contender.environment.items()}
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                [part.format(**told) for part in contender.command],
                env={**os.environ, "PYTHONPATH": str(ROOT), **added},
                cwd=self._directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        self._usage = _Usage(0, 0)

    def wait_for(self, line: str, timeout: float) -> None:
        """Return when the program has written this."""
        deadline = time.perf_counter() + timeout
        while line not in self._log.read_text(errors="replace"):
            if time.perf_counter() > deadline or not self.is_alive():
                raise RuntimeError(f"{self._name} never said {line!r}:\n{self.last_words()}")
            time.sleep(0.002)

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def usage(self) -> _Usage:
        """Return its CPU so far, with that of children that have ended, and its peak memory.

        Of a process that has died: what it had used when this was last asked.
        """
        if self.is_alive():
            self._usage = self._read_usage()
        return self._usage

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def _read_usage(self) -> _Usage:
        process = Path("/proc", str(self._popen.pid))
        # After the name, which may hold anything: utime, stime, cutime and cstime are 14 to 17.
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        peak_kib = int(status.get("VmHWM", "0 kB").split()[0])  # A dead process has none.
        return _Usage(sum(map(int, fields[11:15])) / _TICKS, peak_kib / 1024)

    def stop(self) -> None:
        """End it as its supervisor would, and remove what it has left."""
        self._popen.terminate()
        try:
            self._popen.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.communicate()
        shutil.rmtree(self._directory)


def measure(
    kafka: KafkaCluster, contender: Contender, partitions: int, expected: Mapping[str, Json]
) -> Run:
    """Run a contender over the whole input topic, into an output topic of its own."""
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
    return Run(
        seconds=end - start,
        cpu_seconds=after.cpu_seconds - before.cpu_seconds,
        peak_mib=after.peak_mib,
        verdict=f"DIED, {verdict}" if died else verdict,
    )


def expected_records(bootstrap: str, topic: str, partitions: int, events: int) -> dict[str, Json]:
    """Return what the records have to say, by request id."""
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
    """Tell what is wrong with the records: any missing, repeated, or with other contents."""
    times: Counter[str] = Counter()
    other = 0
    for key, value in seen:
        record = json.loads(value or b"{}")
        request_id = str(record.get("request_id"))
        times[request_id] += 1
        wanted = expected.get(request_id, {"request_id": None})
        same = all(record.get(name) == member for name, member in wanted.items())
        other += not same or key != request_id.encode()
    faults = {
        "missing": len(expected.keys() - times.keys()),
        "repeated": sum(count - 1 for count in times.values()),
        "other than expected": other,
    }
    told = ", ".join(f"{count} {fault}" for fault, count in faults.items() if count)
    return f"WRONG: {told}" if told else "right"


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
    # At the beginning, which is the end of a new topic; it sees committed records only.
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.queue.backoff.ms": 20}
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    return reader


def _read(reader: Consumer, process: _Process, wanted: int) -> tuple[Seen, float]:
    """Return records until there are as many as wanted, or no more; and when the last one came."""
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
    """Return what was written after the end, which should be nothing."""
    return [(message.key(), message.value()) for message in reader.consume(10_000, 1)]
