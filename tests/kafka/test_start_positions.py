"""Where the service begins to read, and how it handles foreign commit metadata."""

from collections.abc import Callable

import pytest

from tests.kafka.harness import SECONDS, Bench, eventually, request_ids, stream, whole

pytestmark = pytest.mark.kafka

_NOW = 1_767_225_600_000


def _send_numbered(bench: Bench, first: int, last: int, partition: int = 0) -> list[str]:
    """Send whole responses, one a second by their timestamps; return their request ids."""
    ids = [f"r{number}" for number in range(first, last)]
    for number, request_id in zip(range(first, last), ids, strict=True):
        bench.send(
            whole(request_id), request_id, partition=partition, timestamp=_NOW + 1000 * number
        )
    bench.flush()
    return ids


def test_a_new_group_reads_everything_that_is_there(bench: Bench) -> None:
    ids = [id_ for part in range(3) for id_ in _send_numbered(bench, 3 * part, 3 * part + 3, part)]
    service = bench.start()
    assert sorted(request_ids(bench.read_up())) == ids
    assert service.stop() == 0


def test_latest_begins_at_the_end_and_is_remembered_before_a_message_comes(bench: Bench) -> None:
    """Otherwise the service would skip what arrives while it is down."""
    _send_numbered(bench, 0, 5)
    latest = {"start": "latest", "kafka_session_timeout_ms": "1500"}
    bench.start(**latest).wait_for("partitions_assigned")
    eventually(lambda: all(one.offset >= 0 for one in bench.committed().values()), "a commit")
    assert {number: one.offset for number, one in bench.committed().items()} == {0: 5, 1: 0, 2: 0}
    bench.services[0].kill()

    ids = _send_numbered(bench, 5, 8)
    service = bench.start(**latest)
    assert request_ids(bench.read_up()) == ids
    assert service.stop() == 0


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (str(_NOW + 3000), ["r3", "r4"]),
        ("2026-01-01T00:00:03.5Z", ["r4"]),
        (str(_NOW + 10_000), []),
    ],
)
def test_a_time_begins_at_the_first_message_of_that_time(
    bench: Bench, moment: str, expected: list[str]
) -> None:
    _send_numbered(bench, 0, 5)
    service = bench.start(start=moment)
    service.wait_for("partitions_assigned")
    assert request_ids(bench.read_up()) == expected
    assert service.stop() == 0


@pytest.mark.parametrize("start", ["earliest", "latest", str(_NOW)])
def test_a_committed_offset_wins_over_start(bench: Bench, start: str) -> None:
    ids = _send_numbered(bench, 0, 5)
    bench.commit(0, 3, "")
    service = bench.start(start=start)
    service.wait_for("partitions_assigned")
    assert request_ids(bench.read_up()) == ids[3:]
    assert service.stop() == 0


@pytest.fixture
def with_open_request(bench: Bench) -> Bench:
    """Leave behind a commit whose metadata says that the request at offset 2 is open."""
    _send_numbered(bench, 0, 2)
    bench.send(stream("open")[0], "open", partition=0)
    _send_numbered(bench, 3, 5)
    service = bench.start()
    bench.record_of("r4")
    bench.wait_until_committed()
    assert service.stop() == 0
    assert bench.committed()[0].offset == 5
    return bench


@pytest.mark.parametrize(
    ("offset", "metadata", "reason"),
    [
        (5, "", "no metadata"),
        (5, "written by kafka-ui", "foreign metadata"),
        (5, "a1.AAAA", "damaged metadata"),
        (3, None, "metadata of another offset"),
    ],
)
def test_foreign_metadata_is_ignored_and_reading_goes_on_at_the_offset(
    with_open_request: Bench, offset: int, metadata: str | None, reason: str
) -> None:
    """Mirroring tools copy old metadata beside new offsets, and operators reset offsets by hand."""
    bench = with_open_request
    if metadata is None:
        metadata = bench.committed()[0].metadata or ""
    bench.commit(0, offset, metadata)

    service = bench.start()
    line = service.wait_for("checkpoint_ignored", partition=0)
    assert line == line | {"reason": reason, "offset": offset, "start_offset": offset}
    again = ["r3", "r4"] if offset == 3 else []
    assert request_ids(bench.read_up()) == sorted(["r0", "r1", "r3", "r4", *again])
    assert service.stop() == 0


def test_a_checkpoint_of_a_newer_version_is_refused_with_its_place(
    with_open_request: Bench,
) -> None:
    """Reading on without its open requests would lose them."""
    bench = with_open_request
    bench.commit(0, 5, "a9.something-unknown")
    service = bench.start()
    assert service.wait() == 2
    [line] = service.lines("service_stopped")
    assert line["code"] == 2
    for part in (bench.group, bench.input, "partition 0", "newer version", "newer_checkpoints"):
        assert part in line["error"]
    assert bench.committed()[0].metadata == "a9.something-unknown"


def test_an_offset_above_the_end_begins_with_what_is_there(bench: Bench) -> None:
    ids = _send_numbered(bench, 0, 3)
    bench.commit(0, 50, "")
    service = bench.start()
    line = service.wait_for("checkpoint_ignored", partition=0)
    assert (line["offset"], line["start_offset"]) == (50, 0)
    assert request_ids(bench.read_up()) == ids
    assert service.stop() == 0


def test_a_deleted_start_is_logged_and_its_open_request_counted(
    with_open_request: Bench,
) -> None:
    bench = with_open_request
    ids = _send_numbered(bench, 5, 9)
    bench.delete_below(0, 7)

    service = bench.start()
    line = service.wait_for("reread_started", partition=0)
    assert line["level"] == "warning"
    assert (line["position"], line["offset"], line["open_requests"]) == (5, 7, 1)
    assert line["deleted"] > 0
    assert request_ids(bench.read_up())[-2:] == ids[2:]
    assert service.stop() == 0
    totals = service.totals()
    assert totals["request incomplete(retention)"] == 1


def test_everything_deleted_while_away_leaves_no_lag_behind(with_open_request: Bench) -> None:
    bench = with_open_request
    _send_numbered(bench, 5, 9)
    bench.delete_below(0, 9)
    service = bench.start()
    bench.wait_until_committed()
    assert service.stop() == 0


def test_markers_of_transactions_leave_no_lag(bench: Bench) -> None:
    """An autoscaler would never scale to zero."""
    producer = bench.transactional_producer()
    service = bench.start()
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(bench.input, whole(f"r{number}"), partition=0)
        producer.flush(SECONDS)
        end(SECONDS)
    bench.record_of("r0")
    eventually(lambda: bench.ends()[0] == 4, "the marks of both transactions")
    bench.wait_until_committed()
    assert service.stop() == 0
    assert request_ids(bench.records()) == ["r0"]


@pytest.mark.parametrize("length", [2, 40])
def test_a_topic_recreated_while_the_service_is_away_is_read_from_its_beginning(
    bench: Bench, length: int
) -> None:
    _send_numbered(bench, 0, 10)
    service = bench.start()
    bench.record_of("r9")
    assert service.stop() == 0
    bench.kafka.delete_topic(bench.input)
    eventually(
        lambda: all(one.offset < 0 for one in bench.committed().values()),
        "a group that has forgotten the topic",
    )
    bench.kafka.create_topic(bench.input, bench.partitions)
    ids = _send_numbered(bench, 100, 100 + length)
    service = bench.start()
    assert [one for one in request_ids(bench.read_up()) if len(one) > len("r9")] == ids
    assert service.stop() == 0


def test_a_pattern_finds_its_topics(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(partitions=1)
    ids = _send_numbered(bench, 0, 3)
    service = bench.start(topics=f"^in[p]ut-{bench.name}$")
    assert request_ids(bench.read_up()) == ids
    assert service.stop() == 0
