"""Zombies, one at a time: what a process writes that has been replaced is seen by nobody."""

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
    # What the zombie has left open hides what comes after it until brokers give it up.
    "kafka_producer_transaction_timeout_ms": "6000",
}
_STILL_S = 0.2
_STAYS_S = 1.0  # Of the time that a transaction may take.
_PACE_S = 0.002
_AWAKE = ("partitions_lost", "clients_rebuilt", "producer_fenced", "service_stopped")


@pytest.fixture
def bench(kafka: KafkaCluster, tmp_path: Path) -> Iterator[Bench]:
    for make in benches(kafka, tmp_path):
        yield make()


class _Load:
    """Whole responses, one after the other, until it is told to end; each has one record."""

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
        """Send no more, and make sure that everything has arrived."""
        self._ending.set()
        self._thread.join()
        self._bench.flush()

    def _run(self) -> None:
        for number in count():
            if self._ending.wait(_PACE_S):
                return
            self.ids.append(f"r{number}")
            self._bench.send(whole(f"r{number}"), f"r{number}")


class _Log:
    """Ends of the output topic, as they are for those who read everything and for the others."""

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
        """Return where in each partition there are writes of a transaction that is not decided."""
        visible, written = (self._ends(level) for level in ("read_committed", "read_uncommitted"))
        return {number: end for number, end in visible.items() if end < written[number]}

    def _ends(self, level: str) -> dict[int, int]:
        return {
            one.partition: self._readers[level].get_watermark_offsets(one, timeout=SECONDS)[1]
            for one in self._partitions
        }


def _stopped_in_a_transaction(service: ServiceProcess, log: _Log) -> dict[int, int]:
    """Stop a process while the log holds writes of its that are not committed; return where."""

    def look() -> dict[int, int]:
        service.process.send_signal(signal.SIGSTOP)
        time.sleep(_STILL_S)  # What is on its way arrives.
        found = log.open_from()
        if found:
            time.sleep(_STAYS_S)  # Else its commit was on its way, to a slow broker.
        if not found or log.open_from() != found:
            service.process.send_signal(signal.SIGCONT)
            return {}
        return found

    return eventually(look, "a process stopped in a transaction")


def _is_moved(before: dict[int, TopicPartition], after: dict[int, TopicPartition]) -> bool:
    return any(before[number].offset < after[number].offset for number in before)


def _each_once(got: list[Received], ids: list[str]) -> None:
    assert len(record_ids(got)) == len(set(record_ids(got)))
    served = [one.json["request_id"] for one in got]
    assert sorted(one for one in served if not one.startswith("sentinel-")) == sorted(ids)


def test_what_a_zombie_has_begun_is_never_seen_and_its_heir_goes_on(bench: Bench) -> None:
    first = bench.start(**_ZOMBIE, transactional_id=f"{bench.name}-a")
    with _Log(bench) as log, _Load(bench) as load:
        bench.records(lambda got: len(got) > 20, "some records")
        undecided = _stopped_in_a_transaction(first, log)
        seen = len(bench.reader(bench.output, "acceptance-record").visible())
        before = bench.committed()
        second = bench.start(**_ZOMBIE, transactional_id=f"{bench.name}-b")
        second.wait_for("partitions_assigned")
        bench.records(lambda got: len(got) > seen + 100, "records of the heir")
        eventually(lambda: _is_moved(before, bench.committed()), "a commit of the heir")
        middle = bench.committed()
        first.process.send_signal(signal.SIGCONT)
        eventually(lambda: any(map(first.lines, _AWAKE)), "a zombie that knows what it is")
        load.end()
        got = bench.read_up()
        bench.wait_until_committed()
        after = bench.committed()
        eventually(lambda: not log.open_from(), "an end of all transactions")
    assert [first.process.poll() or first.stop(), second.stop()] == [0, 0]
    _each_once(got, load.ids)
    written = {(one.partition, one.offset) for one in got}
    assert not written & set(undecided.items()), "what the zombie had written has become visible"
    for number in range(bench.partitions):
        assert before[number].offset <= middle[number].offset <= after[number].offset


def test_of_two_with_one_transactional_id_the_older_one_is_fenced(bench: Bench) -> None:
    name = {"transactional_id": f"{bench.name}-same"}
    first = bench.start(**name)
    with _Load(bench) as load:
        bench.records(lambda got: len(got) > 20, "some records")
        second = bench.start(**name)
        assert first.wait_for("producer_fenced")["level"] == "error"
        assert first.wait() == 1
        seen = len(bench.records())
        bench.records(lambda got: len(got) > seen + 100, "records of the younger one")
        load.end()
        got = bench.read_up()
    assert second.stop() == 0
    assert not second.lines("producer_fenced")
    _each_once(got, load.ids)
