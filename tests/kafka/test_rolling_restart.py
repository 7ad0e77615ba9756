"""A rolling update as the chart makes it: the pods of a StatefulSet, one after the other.

With `-s` it prints the numbers that helm/README.md gives for rollouts.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from uuid import uuid4

import pytest
from confluent_kafka import Consumer

from tests.kafka.harness import Bench, ServiceProcess, eventually, record_ids, request_ids, whole

pytestmark = pytest.mark.kafka

_PODS = 3
_PARTITIONS = 6
_EVERY_S = 0.05


@dataclass
class _Rollout:
    """What a rolling update did.

    Attributes:
        moved: times that a pod which was not being restarted was given or had to give partitions.
        pause: longest time in seconds between two records of one partition.
        restart: longest time in seconds in which a pod was away or had no partitions yet.

    """

    moved: int
    pause: float
    restart: float


@contextmanager
def _traffic(bench: Bench) -> Iterator[set[str]]:
    """Send a response to every partition all the time, and yield the ids that were sent."""
    sent: set[str] = set()
    ended = Event()

    def send() -> None:
        number = 0
        while not ended.wait(_EVERY_S):
            for partition in range(bench.partitions):
                request_id = f"r{number}-{partition}"
                bench.send(whole(request_id), request_id, partition=partition)
                sent.add(request_id)
            number += 1

    thread = Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()
        bench.flush()


@contextmanager
def _pauses(bench: Bench) -> Iterator[dict[int, float]]:
    """Yield the longest time so far between two records of each partition of the input."""
    longest = dict.fromkeys(range(bench.partitions), 0.0)
    last: dict[int, float] = {}
    ended = Event()

    def watch() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bench.bootstrap,
                "group.id": f"pauses-{uuid4()}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        consumer.subscribe([bench.output])
        while not ended.is_set():
            for message in consumer.consume(500, timeout=0.05):
                now = time.monotonic()
                partition = int((message.key() or b"").decode().partition("-")[2])
                longest[partition] = max(longest[partition], now - last.get(partition, now))
                last[partition] = now
        consumer.close()

    thread = Thread(target=watch)
    thread.start()
    try:
        eventually(lambda: len(last) == bench.partitions, "records of every partition")
        longest.update(dict.fromkeys(longest, 0.0))
        yield longest
    finally:
        ended.set()
        thread.join()


def _roll(bench: Bench, start: Callable[[int], ServiceProcess]) -> _Rollout:
    """Restart the pods as a StatefulSet does: the last first, each when its successor is ready."""
    pods = [start(number) for number in range(_PODS)]
    share = _PARTITIONS // _PODS

    eventually(lambda: all(len(pod.held()) == share for pod in pods), "a share for each pod")
    with _traffic(bench) as sent, _pauses(bench) as pauses:
        moved, restart = 0, 0.0
        for number in reversed(range(_PODS)):
            others = [pod for pod in pods if pod is not pods[number]]
            before = sum(len(pod.moves()) for pod in others)
            begun = time.monotonic()
            assert pods[number].stop() == 0
            pods[number] = start(number)
            eventually(
                lambda: all(len(pod.held()) == share for pod in pods), "a share for each again"
            )
            restart = max(restart, time.monotonic() - begun)
            moved += sum(len(pod.moves()) for pod in others) - before
        longest = max(pauses.values())
    bench.read_up()
    got = bench.records()
    assert set(request_ids(got)) == sent
    assert len(set(record_ids(got))) == len(got) == len(sent) + _PARTITIONS
    return _Rollout(moved, longest, restart)


@pytest.fixture
def wide(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench(partitions=_PARTITIONS)


def test_with_static_membership_only_the_partitions_of_the_pod_that_restarts_pause(
    wide: Bench,
) -> None:
    rollout = _roll(
        wide,
        lambda number: wide.start(
            transactional_id=f"{wide.group}-{number}",
            kafka_consumer_group_instance_id=f"pod-{number}",
            kafka_session_timeout_ms="30000",
        ),
    )
    print(f"\nstatic membership: {rollout}")
    assert rollout.moved == 0
    assert rollout.pause < rollout.restart + 5


def test_without_it_every_restart_moves_partitions_of_the_others(wide: Bench) -> None:
    """The control: what static membership is for can be seen by this measurement."""

    def start(number: int) -> ServiceProcess:
        if len(wide.services) >= _PODS:
            # A pod that is back before the others have seen it go may be given what it had.
            others = [pod for pod in wide.services if pod.process.poll() is None]
            eventually(
                lambda: sum(len(pod.held()) for pod in others) == _PARTITIONS, "all for the others"
            )
        return wide.start(transactional_id=f"{wide.group}-{number}")

    rollout = _roll(wide, start)
    print(f"\ndynamic membership: {rollout}")
    assert rollout.moved >= _PODS
