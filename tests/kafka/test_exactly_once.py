"""Exactly once on a real broker: kills, fencing, stops and rejections repeat no record."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from tests.kafka.harness import (
    SECONDS,
    SHORT_SESSION,
    Bench,
    Received,
    benches,
    by_record_id,
    eventually,
    numbered,
    record_ids,
    request_ids,
    stream,
    whole,
)
from tests.kafka.server.cluster import KafkaCluster

pytestmark = pytest.mark.kafka

# Replaces the service's producer; `produced`: whether it has produced a record or dead letter.
_PRODUCER = """
import os, signal, time
from confluent_kafka import KafkaError, KafkaException, Producer
import consumer.kafka.clients

class Meddling(Producer):
    produced = False

    def produce(self, *arguments, **options):
        self.produced = True
        super().produce(*arguments, **options)

    def {call}(self, *arguments):
{body}

consumer.kafka.clients.Producer = Meddling
"""
_KILLED_BEFORE = """
        if self.produced:
            self.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        super().{call}(*arguments)
"""
_KILLED_AFTER = """
        super().{call}(*arguments)
        if self.produced:
            os.kill(os.getpid(), signal.SIGKILL)
"""
_NEVER_DONE = """
        time.sleep(arguments[0])
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
"""
_POISON = b"poison"
_KILLED_BY_POISON = f"""
import consumer.core.partition

class Brittle(consumer.core.partition.Opener):
    def open(self, message):
        if message.value() == {_POISON!r}:
            raise RuntimeError("a bug")
        return super().open(message)

consumer.core.partition.Opener = Brittle
"""


_ENDED_BY_POISON = _KILLED_BY_POISON.replace(
    'raise RuntimeError("a bug")', "import os; os.kill(os.getpid(), 11)"
)


def _meddling(call: str, body: str) -> str:
    return _PRODUCER.format(call=call, body=body.format(call=call))


def _offsets(received: list[Received]) -> list[int]:
    return [one.json["source_first_offset"] for one in received]


def _is_together(bench: Bench) -> int:
    """Compare records and dead letters of partition 0 with its committed offset; return that."""
    offsets = sorted(_offsets(bench.records()) + _offsets(bench.letters()))
    assert offsets == list(range(len(offsets)))
    eventually(lambda: bench.committed()[0].offset == len(offsets), f"an offset {len(offsets)}")
    return len(offsets)


# Kills


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_kills_at_any_moment_lose_nothing_and_repeat_what_the_delivery_allows(
    bench: Bench, delivery: str
) -> None:
    random = Random(2)
    settings = {"delivery": delivery, **SHORT_SESSION}
    streams = {f"s{number}": stream(f"s{number}", chunks=4) for number in range(60)}
    expected = set(streams)
    open_ids = list(streams)
    service = bench.start(**settings)
    # Waiting for uncommitted records makes the kills fall into transactions.
    early = bench.reader(bench.output, "acceptance-record", "read_uncommitted")
    sent = 0
    while open_ids:
        request_id = random.choice(open_ids[:20])
        bench.send(streams[request_id].pop(0), request_id)
        sent += 1
        if not streams[request_id]:
            open_ids.remove(request_id)
        if sent % 90 == 0:
            bench.flush()
            some = len(early.received) + random.randrange(1, 6)
            early.until(lambda got, some=some: len(got) >= some, "some records")  # type: ignore[misc]
            service.kill()
            service = bench.start(**settings)
    bench.read_up()
    assert service.stop() == 0
    assert len(bench.services) == 5
    got = bench.records()
    assert set(request_ids(got)) == expected
    by_id = by_record_id(got)
    assert len(by_id) == len(expected) + bench.partitions
    assert all(one.json["stream_complete"] for one in got)
    if delivery == "exactly_once":
        assert len(got) == len(by_id)


@pytest.mark.parametrize(
    ("call", "killed", "committed"),
    [
        ("send_offsets_to_transaction", _KILLED_BEFORE, False),
        ("commit_transaction", _KILLED_BEFORE, False),
        ("commit_transaction", _KILLED_AFTER, True),
    ],
    ids=["after its messages", "after its offsets", "after its commit"],
)
def test_a_kill_in_a_transaction_leaves_all_of_it_or_nothing_and_blocks_no_successor(
    make_bench: Callable[..., Bench], call: str, killed: str, committed: bool
) -> None:
    bench = make_bench(partitions=1)
    for number in range(20):
        bench.send(b"{broken" if number % 4 == 1 else whole(f"r{number}"), f"r{number}")
    bench.flush()
    bench.meddle(_meddling(call, killed))
    patient = {"kafka_producer": "transaction.timeout.ms=120000"}
    assert bench.start(**SHORT_SESSION, **patient).wait() == -signal.SIGKILL
    early = bench.reader(bench.output, "acceptance-record", "read_uncommitted").to_the_end()
    assert early, "nothing was on its way"
    if committed:
        assert len(bench.records()) == len(early)
        _is_together(bench)
    else:
        assert bench.committed()[0].offset <= 0
        assert bench.reader(bench.output, "acceptance-record").visible() == []
        assert bench.reader(bench.dead, "dead-letter").visible() == []

    bench.meddle("")
    # A session that ends on a slow machine would repeat more, invisibly for readers.
    service = bench.start(kafka_session_timeout_ms="30000", **patient)
    bench.read_up()  # Waits for less time than the transaction might have taken.
    bench.wait_until_committed()
    assert service.stop() == 0
    assert request_ids(bench.records()) == [f"r{number}" for number in range(20) if number % 4 != 1]
    assert _offsets(bench.letters()) == [1, 5, 9, 13, 17]
    everything = bench.reader(bench.output, "acceptance-record", "read_uncommitted").to_the_end()
    repeats = len(everything) - len(set(record_ids(everything)))
    assert repeats == (0 if committed else len(early)), "uncommitted readers see repeats"


# Fencing


def test_of_two_processes_with_one_transactional_id_the_older_stops_and_names_the_setting(
    bench: Bench,
) -> None:
    older = bench.start(transactional_id=f"same-{bench.name}")
    older.wait_for("partitions_assigned")
    bench.read_up()
    younger = bench.start(transactional_id=f"same-{bench.name}")
    younger.wait_for("service_started")
    sent: set[str] = set()
    while older.process.poll() is None:
        number = len(sent)
        bench.send_whole(f"r{number}")
        sent.add(f"r{number}")
        assert number < 50_000, "it goes on"
    assert older.wait() == 1
    [fenced] = older.lines("producer_fenced")
    assert fenced["transactional_id"] == f"same-{bench.name}"
    [stopped] = older.lines("service_stopped")
    assert "setting transactional_id" in stopped["error"]
    bench.read_up()
    assert younger.stop() == 0
    got = bench.records()
    assert set(request_ids(got)) == sent
    assert len(record_ids(got)) == len(set(record_ids(got)))


# Messages that crash the service


def test_a_message_that_ends_the_process_without_a_word_is_found_and_skipped(
    make_bench: Callable[..., Bench],
) -> None:
    """As a C library that crashes does, or the kernel when memory is short."""
    bench = make_bench(partitions=1)
    bench.meddle(_ENDED_BY_POISON)
    bench.send_whole("before")
    bench.send(_POISON, "r")
    bench.send_whole("after")
    bench.flush()
    for _ in range(2):
        service = bench.start()
        assert service.wait() == -11
        assert not service.lines("service_stopped")
    committed = max(0, bench.committed()[0].offset)
    done = bench.run_command("explain", "--find-crash", bench.input, "0", str(committed))
    assert done.returncode == 1
    place = f"{bench.input}:0:1"
    assert f"the message {place} ends the process that reads it (SIGSEGV)" in done.stderr

    service = bench.start(skip=place)
    service.wait_for("message_skipped", partition=0, offset=1)
    bench.record_of("after")
    assert service.stop() == 0
    done = bench.run_command("explain", "--find-crash", bench.input, "0", "2")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_message_that_crashes_the_service_is_named_and_skipped_on_request(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(partitions=1)
    bench.meddle(_KILLED_BY_POISON)
    first, *rest = stream("open")
    bench.send(first, "open")
    bench.send_whole("before")
    service = bench.start()
    bench.wait_until_committed()
    bench.send_whole("just before")
    bench.send(_POISON, "open")
    bench.send_whole("after")
    bench.send_events("open", rest)
    place = f"{bench.input}:0:3"
    assert service.wait() == 1
    service = bench.start()
    assert service.wait() == 1
    for one in bench.services:
        [line] = one.lines("service_stopped")
        assert line["code"] == 1
        advice = f"at {place}; to pass over this message, add '{place}' to skip"
        assert line["error"] == f"RuntimeError {advice}"

    service = bench.start(skip=place)
    service.wait_for("message_skipped", partition=0, offset=3)
    record = bench.record_of("open").json
    assert (record["source_first_offset"], record["stream_complete"]) == (0, True)
    bench.wait_until_committed()
    assert service.stop() == 0
    service = bench.start(skip=place)
    bench.read_up()
    assert service.stop() == 0
    assert sorted(request_ids(bench.records())) == ["after", "before", "just before", "open"]
    [letter] = bench.letters()
    assert letter.json == letter.json | {
        "reason": "skipped_by_operator",
        "source_topic": bench.input,
        "source_partition": 0,
        "source_first_offset": 3,
        "value_base64": None,
    }


# Stops


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_leaves_nothing_to_repeat(
    make_bench: Callable[..., Bench], number: signal.Signals
) -> None:
    bench = make_bench(partitions=1)
    service = bench.start()
    service.wait_for("partitions_assigned")
    sent = 0
    ended = False
    while not ended:
        ended = service.process.poll() is not None  # First: what is sent last is for the next one.
        for _ in range(20):
            bench.send(whole(f"r{sent}"), f"r{sent}")
            sent += 1
        bench.flush()
        if sent == 400:
            service.process.send_signal(number)
    assert service.wait() == 0
    offset = _is_together(bench)
    assert 0 < offset < sent
    service = bench.start()
    bench.read_up()
    assert service.stop() == 0
    assert request_ids(bench.records()) == numbered(sent)
    [stopped] = service.lines("service_stopped")
    assert stopped["totals"]["message accepted"] == sent - offset + 1
    assert stopped["totals"]["request published"] == sent - offset + 1


def test_a_second_signal_ends_a_process_that_waits_for_a_commit(bench: Bench) -> None:
    bench.meddle(_meddling("commit_transaction", _NEVER_DONE))
    service = bench.start(shutdown_timeout="60s", **SHORT_SESSION)
    service.wait_for("partitions_assigned")
    bench.send_whole("r")
    service.process.send_signal(signal.SIGTERM)
    service.wait_for("shutdown_requested")
    service.process.send_signal(signal.SIGTERM)
    assert service.wait() == -signal.SIGTERM
    bench.meddle("")
    service = bench.start(**SHORT_SESSION)
    bench.read_up()
    assert service.stop() == 0
    assert request_ids(bench.records()) == ["r"]


# What the broker rejects


@pytest.fixture(scope="module")
def strict_kafka(kafka: KafkaCluster) -> Iterator[KafkaCluster]:  # noqa: ARG001 - it skips without Kafka.
    """Return a broker that takes little metadata and can forbid things."""
    config = {
        "offset.metadata.max.bytes": "200",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KafkaCluster(config=config) as cluster:
        yield cluster


@pytest.fixture
def strict_bench(strict_kafka: KafkaCluster, tmp_path: Path) -> Iterator[Bench]:
    makers = benches(strict_kafka, tmp_path)
    yield next(makers)(partitions=1)
    assert next(makers, None) is None


def test_a_checkpoint_that_the_broker_rejects_stops_the_service_and_loses_nothing(
    strict_bench: Bench,
) -> None:
    bench = strict_bench
    service = bench.start()
    bench.read_up()
    bench.wait_until_committed()
    for number in range(400):
        bench.send(stream(f"s{number}")[0], f"s{number}")
    bench.send_whole("behind")
    assert service.wait() == 1
    [stopped] = service.lines("service_stopped")
    assert stopped["code"] == 1
    assert "metadata" in stopped["error"]
    after = bench.committed()[0].offset
    # What is committed is open, and will be read again; the record behind is not lost.
    assert 1 <= after < 402
    assert request_ids(bench.records()) == []


@pytest.mark.parametrize("forbidden", ["topic", "transactional id"])
def test_a_missing_permission_stops_the_service_and_names_the_resource(
    strict_bench: Bench, forbidden: str
) -> None:
    bench = strict_bench
    kind, name = {
        "topic": (ResourceType.TOPIC, bench.output),
        "transactional id": (ResourceType.TRANSACTIONAL_ID, f"{bench.group}-0"),
    }[forbidden]
    # A user with one permission does not have the others.
    seen_only = AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    [made] = bench.admin.create_acls([seen_only]).values()
    made.result(SECONDS)
    bench.send_whole("r")
    service = bench.start()
    eventually(lambda: service.lines("service_stopped") or service.lines("clients_rebuilt"), "end")
    assert not service.lines("clients_rebuilt"), "again and again"
    assert service.wait() == 1
    [stopped] = service.lines("service_stopped")
    assert stopped["code"] == 1
    assert name in stopped["error"]
    assert max(0, bench.committed()[0].offset) == 0
