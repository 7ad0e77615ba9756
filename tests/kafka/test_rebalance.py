"""Several instances: partitions move, and the union of their records is complete."""

import signal
from collections.abc import Callable, Iterator
from itertools import chain, zip_longest

import pytest

from tests.kafka.harness import (
    Bench,
    by_record_id,
    eventually,
    numbered,
    record_ids,
    request_ids,
    stream,
)

pytestmark = pytest.mark.kafka

_PROTOCOLS = [
    pytest.param({}, id="classic"),
    pytest.param({"kafka_group_protocol": "consumer"}, id="consumer"),
]


class _Traffic:
    """Streams that all overlap, so that at every moment each partition has open requests."""

    def __init__(self, bench: Bench, streams: int = 60) -> None:
        self.ids = {*numbered(streams, "s")}
        self._bench = bench
        events = [[(one, value) for value in stream(one, chunks=10)] for one in sorted(self.ids)]
        mixed = chain.from_iterable(zip_longest(*events))
        self._events: Iterator[tuple[str, bytes]] = iter([one for one in mixed if one])
        self._share = sum(map(len, events)) // 4

    def send(self) -> None:
        """Send the next quarter of all events."""
        for _, (request_id, value) in zip(range(self._share), self._events, strict=False):
            self._bench.send(value, request_id)
        self._bench.flush()


def _holders(bench: Bench) -> list[int]:
    """Return how many partitions each instance holds by its own log."""
    return [len(service.held()) for service in bench.services]


def _is_complete(bench: Bench, ids: set[str]) -> None:
    got = bench.records()
    assert set(request_ids(got)) == ids
    by_id = by_record_id(got)
    assert len({one["request_id"] for one in by_id.values()}) == len(by_id), "under two record ids"
    assert all(one.json["stream_complete"] for one in got)


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_one_joins_and_one_leaves_and_nothing_is_lost_or_repeated(
    bench: Bench, protocol: dict[str, str]
) -> None:
    traffic = _Traffic(bench)
    first = bench.start(**protocol)
    first.wait_for("partitions_assigned")
    traffic.send()
    second = bench.start(**protocol)
    eventually(lambda: sorted(_holders(bench)) == [1, 2], "a share for each")
    traffic.send()
    assert first.stop() == 0
    eventually(lambda: _holders(bench) == [0, 3], "all for the second")
    traffic.send()
    third = bench.start(**protocol)
    eventually(lambda: sorted(_holders(bench)) == [0, 1, 2], "a share for each")
    traffic.send()
    bench.read_up()
    assert [second.stop(), third.stop()] == [0, 0]
    _is_complete(bench, traffic.ids)
    ids = record_ids(bench.records())
    assert len(ids) == len(set(ids))
    for service in bench.services:
        assert not service.lines(level="error")
        assert not service.lines("checkpoint_ignored")


def test_open_requests_move_with_their_partition(bench: Bench) -> None:
    traffic = _Traffic(bench)
    first = bench.start()
    traffic.send()
    bench.wait_until_committed()
    second = bench.start()
    eventually(lambda: sorted(_holders(bench)) == [1, 2], "a share for each")
    moved = second.wait_for("reread_started")
    assert moved["open_requests"] > 0
    for _ in range(3):
        traffic.send()
    bench.read_up()
    assert [first.stop(), second.stop()] == [0, 0]
    _is_complete(bench, traffic.ids)


def test_a_member_that_was_away_too_long_commits_nothing_over_the_new_owner(bench: Bench) -> None:
    """A member that resumes assumes for a moment that it still owns its partitions."""
    traffic = _Traffic(bench)
    session = {"kafka_session_timeout_ms": "1500"}
    first = bench.start(**session)
    first.wait_for("partitions_assigned")
    traffic.send()
    bench.wait_until_committed()
    first.process.send_signal(signal.SIGSTOP)
    second = bench.start(**session)
    eventually(lambda: len(second.held()) == bench.partitions, "all for the second")
    for _ in range(3):
        traffic.send()
    bench.read_up()
    bench.wait_until_committed()
    first.process.send_signal(signal.SIGCONT)
    first.wait_for("partitions_lost")
    eventually(lambda: len(first.held()) + len(second.held()) == bench.partitions, "a share each")
    bench.wait_until_committed()
    assert [first.stop(), second.stop()] == [0, 0]
    _is_complete(bench, traffic.ids)


def test_more_instances_than_partitions_are_idle_and_leave_in_good_order(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(partitions=1)
    services = [bench.start() for _ in range(2)]
    eventually(lambda: sorted(_holders(bench)) == [0, 1], "one for one of them")
    bench.send_whole("r")
    bench.read_up()
    assert [service.stop() for service in services] == [0, 0]
    assert request_ids(bench.records()) == ["r"]
