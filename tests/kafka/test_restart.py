"""Open requests, known requests and records survive the end of a process."""

from collections.abc import Callable

import pytest

from tests.kafka.harness import (
    SHORT_SESSION,
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


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_an_open_request_is_resumed_with_the_place_where_it_began(bench: Bench, end: str) -> None:
    first, *middle, last = stream("long")
    bench.send_whole("before", partition=0)
    bench.send(first, "long", partition=0)
    bench.send_whole("after", partition=0)
    service = bench.start(**SHORT_SESSION)
    bench.record_of("after")
    bench.wait_until_committed()
    getattr(service, end)()

    service = bench.start(**SHORT_SESSION)
    assert service.wait_for("reread_started", partition=0)["open_requests"] == 1
    assert service.wait_for("reread_finished", partition=0)["open_requests"] == 1
    bench.send_events("long", (*middle, last), partition=0)
    record = bench.record_of("long").json
    assert (record["source_first_offset"], record["source_last_offset"]) == (1, 7)
    assert record["stream_complete"] is True
    assert service.stop() == 0
    assert request_ids(bench.records()) == ["before", "long", "after"]


def test_finished_requests_stay_known_over_a_restart(bench: Bench) -> None:
    events = stream("once")
    bench.send(stream("open")[0], "open", partition=0)
    bench.send_events("once", events, partition=0)
    service = bench.start()
    bench.record_of("once")
    assert service.stop() == 0

    bench.send_events("once", events, partition=0)
    service = bench.start()
    assert request_ids(bench.read_up()) == ["once"]
    assert service.stop() == 0
    totals = service.totals()
    assert totals["message skipped(late_repeat)"] == len(events)


def test_a_partition_is_not_committed_while_it_is_reread(bench: Bench) -> None:
    """A commit in the middle would list open requests as closed."""
    first, *rest = stream("long")
    bench.send(first, "long", partition=0)
    for _ in range(40_000):
        bench.send(None, partition=0)
    bench.send_events("long", rest[:2], partition=0)
    service = bench.start()
    bench.wait_until_committed()
    assert service.stop() == 0

    before = bench.committed()[0]
    bench.meddle(SLOW_REREAD.format(seconds=0.1))  # Far longer than to stop it.
    service = bench.start()
    service.wait_for("reread_started", partition=0)
    assert service.stop() == 0
    after = bench.committed()[0]
    assert not service.lines("reread_finished")
    assert (after.offset, after.metadata) == (before.offset, before.metadata)

    bench.meddle("")
    service = bench.start()
    bench.send_events("long", rest[2:], partition=0)
    record = bench.record_of("long").json
    assert record["source_first_offset"] == 0
    assert service.stop() == 0


def test_a_restart_in_good_order_repeats_nothing(bench: Bench) -> None:
    service = bench.start()
    for part in range(3):
        bench.send_whole(*numbered(40, f"r{part}-"))
        service.wait_for("partitions_assigned")
        if part:
            eventually(bench.records, "a record")
        assert service.stop() == 0
        service = bench.start()
    got = bench.read_up()
    assert service.stop() == 0
    assert len(record_ids(got)) == len(set(record_ids(got))) == 120 + bench.partitions


def test_other_settings_keep_open_requests(bench: Bench) -> None:
    """The digest in the checkpoint differs; open requests still get their outcomes."""
    first, *rest = stream("long")
    bench.send(first, "long", partition=0)
    bench.flush()
    service = bench.start()
    bench.wait_until_committed()
    assert service.stop() == 0
    service = bench.start(idle_timeout="600s", max_stats_bytes="2MiB")
    bench.send_events("long", rest, partition=0)
    assert bench.record_of("long").json["source_first_offset"] == 0
    assert service.stop() == 0


def test_two_runs_over_the_same_topic_give_the_same_records(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(partitions=1)
    for number in range(5):
        bench.send(whole(f"r{number}"), f"r{number}", timestamp=1_767_225_600_000 + number)
    bench.flush()
    service = bench.start()
    bench.record_of("r4")
    assert service.stop() == 0
    service = bench.start(group=f"another-{bench.name}")
    bench.records(lambda got: len(got) == 10)
    assert service.stop() == 0
    got = [one.value for one in bench.records()]
    assert got[::2] == got[1::2]
