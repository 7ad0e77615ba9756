"""Zombies, one at a time: no subscriber sees the writes of a process that has been replaced."""

import signal
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.kafka.harness import (
    SECONDS,
    Bench,
    Received,
    ServiceProcess,
    benches,
    eventually,
    record_ids,
    whole,
)
from tests.kafka.server.cluster import KafkaCluster

pytestmark = pytest.mark.kafka

_ZOMBIE = {
    # Transactions as often as possible, so that one is open at almost any moment.
    "commit_interval": "10ms",
    "kafka_session_timeout_ms": "1500",
    # The zombie's open transaction hides later writes until the brokers abort it.
    "kafka_producer_transaction_timeout_ms": "6000",
}
_ARRIVAL_S = 0.2
_COMMIT_S = 1.0  # A commit on its way to a slow broker takes no longer.
_INTERVAL_S = 0.002
_AWAKE = ("partitions_lost", "clients_rebuilt", "producer_fenced", "service_stopped")


@pytest.fixture
def bench(kafka: KafkaCluster, tmp_path: Path) -> Iterator[Bench]:
    for make in benches(kafka, tmp_path):
        yield make()


class _Load:
    """Sends whole responses, one after the other, until `end`; each has one record."""

    def __init__(self, bench: Bench) -> None:
        self.ids: list[str] = []
        self._bench = bench
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop sending, and wait until the brokers have everything."""
        self._ending.set()
        self._thread.join()
        self._bench.flush()

    def _run(self) -> None:
        for number in count():
            if self._ending.wait(_INTERVAL_S):
                return
            self.ids.append(f"r{number}")
            self._bench.send(whole(f"r{number}"), f"r{number}")


class _Log:
    """The ends of the output topic, under read_committed and under read_uncommitted."""

    def __init__(self, bench: Bench) -> None:
        self._partitions = [TopicPartition(bench.output, number) for number in range(3)]
        self._readers = {
            level: Consumer(
                {
                    "bootstrap.servers": bench.bootstrap,
                    "group.id": level,
                    "isolation.level": level,
                    "log_level": 0,
                }
            )
            for level in ("read_committed", "read_uncommitted")
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self._readers.values():
            reader.close()

    def open_from(self) -> dict[int, int]:
        """Return the offsets from which partitions hold writes of an open transaction."""
        visible, written = (self._ends(level) for level in ("read_committed", "read_uncommitted"))
        return {number: end for number, end in visible.items() if end < written[number]}

    def _ends(self, level: str) -> dict[int, int]:
        return {
            one.partition: self._readers[level].get_watermark_offsets(one, timeout=SECONDS)[1]
            for one in self._partitions
        }


def _stopped_in_a_transaction(service: ServiceProcess, log: _Log) -> dict[int, int]:
    """Stop a process during a transaction; return the offsets of its uncommitted writes."""

    def look() -> dict[int, int]:
        service.process.send_signal(signal.SIGSTOP)
        time.sleep(_ARRIVAL_S)  # Writes on their way arrive.
        found = log.open_from()
        if found:
            time.sleep(_COMMIT_S)  # So does a commit.
        if not found or log.open_from() != found:
            service.process.send_signal(signal.SIGCONT)
            return {}
        return found

    return eventually(look, "a process stopped in a transaction")


def _has_moved(before: dict[int, TopicPartition], after: dict[int, TopicPartition]) -> bool:
    return any(before[number].offset < after[number].offset for number in before)


def _each_once(got: list[Received], ids: list[str]) -> None:
    assert len(record_ids(got)) == len(set(record_ids(got)))
    served = [one.json["request_id"] for one in got]
    assert sorted(one for one in served if not one.startswith("sentinel-")) == sorted(ids)


def test_no_write_of_a_zombie_becomes_visible_and_its_successor_continues(bench: Bench) -> None:
    first = bench.start(**_ZOMBIE, transactional_id=f"{bench.name}-a")
    with _Log(bench) as log, _Load(bench) as load:
        bench.records(lambda got: len(got) > 20, "some records")
        uncommitted = _stopped_in_a_transaction(first, log)
        seen = len(bench.reader(bench.output, "acceptance-record").visible())
        before = bench.committed()
        second = bench.start(**_ZOMBIE, transactional_id=f"{bench.name}-b")
        second.wait_for("partitions_assigned")
        bench.records(lambda got: len(got) > seen + 100, "records of the successor")
        eventually(lambda: _has_moved(before, bench.committed()), "a commit of the successor")
        middle = bench.committed()
        first.process.send_signal(signal.SIGCONT)
        eventually(
            lambda: any(map(first.lines, _AWAKE)), "a zombie that knows that it was replaced"
        )
        load.end()
        got = bench.read_up()
        bench.wait_until_committed()
        after = bench.committed()
        eventually(lambda: not log.open_from(), "the end of all transactions")
    assert [first.process.poll() or first.stop(), second.stop()] == [0, 0]
    _each_once(got, load.ids)
    written = {(one.partition, one.offset) for one in got}
    assert not written & set(uncommitted.items()), "writes of the zombie became visible"
    for number in range(bench.partitions):
        assert before[number].offset <= middle[number].offset <= after[number].offset


def test_of_two_processes_with_one_transactional_id_the_older_is_fenced(bench: Bench) -> None:
    name = {"transactional_id": f"{bench.name}-same"}
    first = bench.start(**name)
    with _Load(bench) as load:
        bench.records(lambda got: len(got) > 20, "some records")
        second = bench.start(**name)
        assert first.wait_for("producer_fenced")["level"] == "error"
        assert first.wait() == 1
        seen = len(bench.records())
        bench.records(lambda got: len(got) > seen + 100, "records of the younger process")
        load.end()
        got = bench.read_up()
    assert second.stop() == 0
    assert not second.lines("producer_fenced")
    _each_once(got, load.ids)
