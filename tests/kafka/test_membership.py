"""Membership of the group: static members, slow commits, and partitions that are read again."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from tests.kafka.harness import (
    SECONDS,
    SLOW_REREAD,
    Bench,
    eventually,
    numbered,
    record_ids,
    request_ids,
    stream,
    whole,
)

pytestmark = pytest.mark.kafka

# Commits of records take their time, at the broker as it seems: until there is a file.
_SLOW = """
import os, time
from confluent_kafka import Producer
import consumer.kafka.clients

class Slow(Producer):
    produced = False

    def produce(self, *arguments, **options):
        self.produced = True
        super().produce(*arguments, **options)

    def commit_transaction(self, *arguments):
        while self.produced and not os.path.exists({file!r}):
            time.sleep(0.05)
        super().commit_transaction(*arguments)

consumer.kafka.clients.Producer = Slow
"""


def _is_each_once(bench: Bench, ids: set[str]) -> None:
    got = bench.records()
    assert set(request_ids(got)) == ids
    assert len(record_ids(got)) == len(set(record_ids(got)))
    assert len(got) == len({one.json["request_id"] for one in got})


def _static(name: str) -> dict[str, str]:
    """Return settings of a static member; its session is longer than any wait here."""
    return {"kafka_consumer": f"group.instance.id={name}", "kafka_session_timeout_ms": "60000"}


def _all_are_given_partitions(bench: Bench, members: int) -> bool:
    """Tell whether the group has so many members, and partitions for each, by the broker."""
    [group] = bench.admin.describe_consumer_groups([bench.group]).values()
    given = [one.assignment.topic_partitions for one in group.result(SECONDS).members]
    return len(given) == members and all(given)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restarted_static_member_keeps_its_partitions_and_moves_no_others(
    bench: Bench, end: str
) -> None:
    first = bench.start(**_static("a"))
    first.wait_for("partitions_assigned")
    second = bench.start(**_static("b"))
    eventually(lambda: sorted(map(len, (first.held(), second.held()))) == [1, 2], "a share each")
    events = {f"open{number}": stream(f"open{number}") for number in range(bench.partitions)}
    for number, (request_id, (event, *_)) in enumerate(events.items()):
        bench.send(event, request_id, partition=number)
    bench.read_up()
    bench.wait_until_committed()
    held, moves = first.held(), second.moves()
    getattr(first, end)()
    again = bench.start(**_static("a"))
    eventually(lambda: again.held() == held, "what it had")
    for number, (request_id, (_, *rest)) in enumerate(events.items()):
        bench.send_events(request_id, rest, partition=number)
    bench.read_up()
    assert second.moves() == moves
    assert [again.stop(), second.stop()] == [0, 0]
    _is_each_once(bench, set(events))


def test_of_two_processes_with_one_instance_id_the_older_stops_for_good(
    bench: Bench,
) -> None:
    older = bench.start(**_static("same"))
    older.wait_for("partitions_assigned")
    bench.send_whole("r0")
    bench.read_up()
    younger = bench.start(**_static("same"))
    younger.wait_for("partitions_assigned")
    assert older.wait() == 1
    [stopped] = older.lines("service_stopped")
    assert "another process has this group.instance.id" in stopped["error"]
    assert not older.lines("clients_rebuilt")
    bench.send_whole("r1")
    bench.read_up()
    assert not younger.lines("partitions_lost")
    assert younger.stop() == 0
    _is_each_once(bench, {"r0", "r1"})


@pytest.mark.parametrize("protocol", [{}, {"kafka_group_protocol": "consumer"}])
def test_a_revocation_does_not_wait_too_long_for_a_slow_commit(
    bench: Bench, protocol: dict[str, str], tmp_path: Path
) -> None:
    """The commit succeeds while the partition has a new owner, which must begin behind it."""
    done = tmp_path / "commit"
    bench.meddle(_SLOW.format(file=str(done)))
    # Neither session nor transaction is what ends it.
    first = bench.start(
        shutdown_timeout="2s", kafka_producer="transaction.timeout.ms=120000", **protocol
    )
    first.wait_for("partitions_assigned")
    bench.wait_until_committed()
    bench.meddle("")
    for number in range(30):
        bench.send(whole(f"r{number}"), f"r{number}", partition=number % bench.partitions)
    bench.flush()
    early = bench.reader(bench.output, "acceptance-record", "read_uncommitted")
    early.until(lambda got: got, "a transaction")
    second = bench.start(**protocol)
    first.wait_for("partitions_revoked")
    eventually(lambda: _all_are_given_partitions(bench, 2), "a new owner")
    assert not first.lines("clients_rebuilt"), "it gave up more than its partitions"
    done.touch()
    eventually(lambda: len(second.held()) > 0, "a share")
    bench.read_up()
    assert [second.stop(), first.stop()] == [0, 0]
    _is_each_once(bench, {*numbered(30)})


def test_a_partition_that_is_reread_for_long_does_not_delay_another(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(partitions=2, outputs={"message.timestamp.type": "LogAppendTime"})
    first, *rest = stream("long")
    bench.send(first, "long", partition=0)
    for _ in range(400_000):
        bench.send(None, partition=0)
    bench.flush()
    # So much of the one partition is fetched before the other one has its turn.
    settings = {"kafka_consumer": "queued.min.messages=10000"}
    service = bench.start(**settings)
    bench.wait_until_committed()
    assert service.stop() == 0
    bench.send_whole("live", partition=1)
    bench.meddle(SLOW_REREAD.format(seconds=0.002))  # Longer than a commit takes.
    service = bench.start(**settings)
    finished = service.wait_for("reread_finished", partition=0)
    published = bench.record_of("live").timestamp / 1000
    assert published < datetime.fromisoformat(finished["timestamp"]).timestamp()
    bench.send_events("long", rest, partition=0)
    assert bench.record_of("long").json["source_first_offset"] == 0
    assert service.stop() == 0
    _is_each_once(bench, {"live", "long"})
