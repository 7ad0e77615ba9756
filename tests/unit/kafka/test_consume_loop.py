"""The loop, turned by hand: what a real broker cannot be made to do when a test wants it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer.core.checkpoint import Checkpoint, decode, topic_hash
from consumer.core.message import Message
from consumer.core.partition import MessageResult, Partition
from consumer.kafka.errors import (
    ClientsLostError,
    DeliveryError,
    FencedError,
    KafkaFailureError,
    Stopped,
    UnansweredError,
)
from consumer.telemetry.log_events import LogEvent
from tests.unit.core.made import chunk as body_chunk
from tests.unit.core.made import last_chunk, native, whole
from tests.unit.kafka.fakes import FENCED, TIMED_OUT, WAIT_COORD, failure
from tests.unit.kafka.loop_bench import ABORTED, LoopBench

MAX_REVOKE_S = 5.0
UNKNOWN_PARTITION = [KafkaError._UNKNOWN_PARTITION] * 10_000

Make = Callable[..., LoopBench]


def chunk(request_id: str, sequence: int = 0) -> bytes:
    return native(request_id, sequence=sequence, body=body_chunk())


def response(request_id: str) -> bytes:
    return native(request_id, body=whole(request_id))


def responses(count: int) -> list[bytes]:
    return [response(f"r{number}") for number in range(count)]


@pytest.fixture(params=["exactly_once", "at_least_once"])
def make(request: pytest.FixtureRequest) -> Make:
    """Return a maker of loops of one kind of delivery and of the other."""
    return lambda *arguments, **options: LoopBench(*arguments, delivery=request.param, **options)


@pytest.fixture
def bench(make: Make) -> LoopBench:
    """Return a loop of either delivery that has committed its first position."""
    return started(make())


@pytest.fixture
def once() -> LoopBench:
    """Return the same with transactions."""
    return started(LoopBench())


@pytest.fixture
def repeating() -> LoopBench:
    """Return the same whose positions are committed by the consumer, after the records."""
    return started(LoopBench(delivery="at_least_once"))


def started(bench: LoopBench) -> LoopBench:
    for _ in range(3):
        bench.turn()
    assert bench.committed() == 0
    return bench


# What is committed, and when


def test_a_first_position_is_committed_before_the_interval_is_over(make: Make) -> None:
    """The next start would take another one, where `start` is latest."""
    bench = make()
    for _ in range(3):
        bench.turn()
    assert bench.committed() == 0
    bench.broker.add_partitions("input", 2)
    for _ in range(4):
        bench.turn()
    assert bench.committed(1) == 0


def test_records_are_delivered_before_their_position_is_committed(bench: LoopBench) -> None:
    with bench.stuck():
        bench.send(response("r"))
        bench.pass_time(1)
        assert bench.committed() == 0
        assert bench.totals == {}, "a restart would count again what it reads again"
    bench.pass_time(0)
    assert (bench.keys, bench.committed()) == ([b"r"], 1)
    assert bench.totals == {"message accepted": 1, "request published": 1}


def test_open_requests_are_committed_with_the_place_where_they_began(bench: LoopBench) -> None:
    bench.send(response("r"), chunk("open"), chunk("open", 1))
    bench.pass_time(1)
    assert bench.committed() == 3
    assert bench.checkpoint().open == ((1, 0),)


def test_nothing_is_committed_where_nothing_has_changed(bench: LoopBench) -> None:
    bench.send(response("r"))
    bench.pass_time(1)
    before = bench.commit_count
    for _ in range(50):
        bench.pass_time(10)
    assert bench.commit_count == before


def test_a_position_without_an_outcome_is_committed_after_a_while_and_once(
    bench: LoopBench,
) -> None:
    before = bench.commit_count
    bench.send(chunk("open"))
    bench.pass_time(1)
    assert bench.commit_count == before
    for _ in range(10):
        bench.pass_time(5)
    assert bench.commit_count == before + 1
    assert bench.committed() == 1


def test_only_partitions_with_an_outcome_take_part_in_a_commit(make: Make) -> None:
    bench = started(make(partitions=2))
    bench.write(response("r"))
    bench.send(chunk("open"), partition=1)
    bench.pass_time(1)
    assert (bench.committed(0), bench.committed(1)) == (1, 0)


def test_a_partition_that_is_re_read_is_not_committed_on_revoke_either(make: Make) -> None:
    heir = resumed(make, chunk("open"), *responses(9), limit=2)
    heir.turn()
    assert 0 < heir.consumer.positions[0] < 10
    heir.pass_time(60)
    heir.consumer.on_poll = lambda _: pytest.fail("no poll is needed")
    heir.revoke()
    assert heir.commit_count == 0
    assert heir.keys == [b"r%d" % number for number in range(9)]


def test_a_commit_that_the_group_rejects_is_repeated_and_the_records_are_not(
    repeating: LoopBench,
) -> None:
    repeating.send(response("r"))
    repeating.fail("consumer.commit", KafkaError.REBALANCE_IN_PROGRESS)
    repeating.pass_time(1)
    assert repeating.committed() == 0
    repeating.pass_time(1)
    assert (repeating.keys, repeating.committed()) == ([b"r"], 1)


def test_commits_do_not_pile_up_while_none_is_answered(repeating: LoopBench) -> None:
    before = repeating.commit_count
    repeating.consumer.answers_commits = False
    for number in range(20):
        repeating.send(response(f"r{number}"))
        repeating.pass_time(1)
    assert repeating.commit_count == before + 1
    repeating.consumer.answers_commits = True
    repeating.pass_time(1)
    assert repeating.committed() == 20


def test_a_commit_that_the_group_forbids_ends_the_loop(repeating: LoopBench) -> None:
    repeating.send(response("r"))
    repeating.fail("consumer.commit", KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        repeating.pass_time(1)


def test_a_full_batch_does_not_wait_for_its_interval(make: Make) -> None:
    bench = started(make(commit_interval=60.0, max_commit_outputs=3))
    bench.send(*responses(3))
    assert len(bench.keys) == 3


def test_large_outputs_make_a_full_batch_too(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letters of half a megabyte would fill the memory long before their number counts."""
    monkeypatch.setattr("consumer.kafka.commit_cycle._MAX_OUTPUT_BYTES", 100_000)
    bench = started(make(commit_interval=60.0))
    bench.send(b"{broken" * 5_000)
    assert bench.letters == []
    bench.send(b"{broken" * 5_000, b"{broken" * 5_000)
    assert len(bench.letters) == 3


def test_while_a_full_batch_cannot_be_delivered_reading_pauses_and_the_group_is_still_polled(
    make: Make,
) -> None:
    bench = started(make(commit_interval=60.0, max_commit_outputs=1))
    bench.committer.is_stuck = True
    bench.send(response("a"))
    bench.write(response("b"))
    polls = []

    def on_poll(_timeout: float) -> None:
        polls.append(bench.consumer.paused)
        bench.committer.is_stuck = len(polls) < 4

    bench.consumer.on_poll = on_poll
    bench.turn()
    assert polls == [False, True, True, True]
    assert not bench.consumer.paused
    bench.turn()
    assert bench.keys == [b"a", b"b"]


def test_what_a_poll_returns_while_reading_pauses_is_part_of_the_next_commit(make: Make) -> None:
    bench = started(make(commit_interval=60.0, max_commit_outputs=1))
    bench.committer.is_stuck = True
    bench.send(response("a"))
    bench.write(response("b"), response("late"))
    bench.consumer.max_messages = 0

    def on_poll(timeout: float) -> None:
        if timeout == 0:  # A message that was fetched before the pause.
            bench.consumer.resume(bench.consumer.assignment())
            bench.committer.is_stuck = False

    bench.consumer.on_poll = on_poll
    bench.turn()
    bench.consumer.on_poll = lambda _: None
    bench.turn()
    bench.turn()
    assert bench.keys == [b"a", b"b", b"late"]
    assert bench.committed() == 3


# Transactions


def test_records_and_positions_are_committed_together(once: LoopBench) -> None:
    once.calls.clear()
    once.send(response("r"), chunk("open"))
    once.pass_time(1)
    calls = ["begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction"]
    expected = [f"producer.{call}" for call in calls]
    assert [call for call in once.calls if call in expected] == expected
    assert once.committed() == 2
    assert "consumer.commit" not in once.calls


def test_each_batch_has_the_membership_of_its_own_moment(once: LoopBench) -> None:
    """Brokers refuse a commit of an earlier generation, and accept that of the current one."""
    for number in range(2):
        once.broker.group("group").rebalance()
        once.send(response(f"r{number}"))
        once.pass_time(1)
    assert once.committed() == 2
    assert not once.log.of(LogEvent.TRANSACTION_ABORTED)


def test_nothing_is_handed_over_by_a_consumer_that_the_group_has_expelled(once: LoopBench) -> None:
    """Brokers would accept its commit, over that of the partition's new owner."""
    once.calls.clear()
    once.consumer.is_expelled = True
    once.send(response("r"))
    once.pass_time(1)
    once.consumer.call_back("revoke")
    assert "producer.begin_transaction" not in once.calls
    once.consumer.is_expelled = False
    once.pass_time(0)
    assert (once.keys, once.committed()) == ([b"r"], 1)


def test_a_position_has_the_leader_epoch_of_the_last_message(bench: LoopBench) -> None:
    """By it the client notices that a log was cut off below the position."""
    position = bench.position()
    assert position is not None
    assert position.leader_epoch is None, "no message was read"
    for epoch in (3, 4):
        bench.broker.partitions["input", 0].epoch = epoch
        bench.send(response(f"r{epoch}"))
    bench.pass_time(1)
    position = bench.position()
    assert position is not None
    assert position.leader_epoch == 4


def test_an_aborted_batch_is_delivered_before_later_outcomes_and_nothing_is_read_again(
    once: LoopBench,
) -> None:
    once.calls.clear()
    once.abort_next()
    once.send(response("a"), response("b"))
    once.clock.advance(1)
    once.turn()
    assert once.keys == []
    assert once.consumer.positions == {0: 2}
    once.send(response("c"))
    once.pass_time(1)
    assert (once.keys, once.committed()) == ([b"a", b"b", b"c"], 3)
    assert "consumer.incremental_assign" not in once.calls


def test_an_aborted_position_is_committed_again_though_nothing_has_come_since(
    once: LoopBench,
) -> None:
    once.abort_next()
    once.send(chunk("open"))
    once.pass_time(5)
    once.pass_time(1)
    assert once.committed() == 1


@pytest.mark.parametrize("returns", [False, True])
def test_an_aborted_part_of_a_partition_that_was_lost_meanwhile_is_dropped(
    *, returns: bool
) -> None:
    """Its next owner reads the same messages, and its record would be published twice."""
    once = started(LoopBench(partitions=2))
    once.abort_next()
    once.write(response("lost"))
    once.send(response("kept"), partition=1)
    once.clock.advance(1)
    once.turn()
    once.lose(0)
    if returns:
        once.consumer.call_back("assign", 0)
    once.pass_time(1)
    once.pass_time(1)
    assert sorted(key or b"" for key in once.keys) == ([b"kept", b"lost"] if returns else [b"kept"])
    assert (once.committed(0), once.committed(1)) == (int(returns), 1)
    assert once.totals["request published"] == 1 + returns
    assert once.metric("draft_tokens_total", **VLLM) == 24 * (1 + returns)


def test_too_many_consecutive_aborts_end_the_service(once: LoopBench) -> None:
    """So that the operator sees it; the committed state stays as it is."""
    once.abort_next(1_000)
    once.send(response("r"))
    error = "21 consecutive transactions were aborted; last error: as the test says"
    with pytest.raises(KafkaFailureError, match=error):  # noqa: PT012 - whichever turn it is.
        for _ in range(100):
            once.pass_time(2)
    assert once.calls.count("producer.abort_transaction") == 21
    assert once.committed() == 0


def test_a_delivery_ends_the_series_of_aborts(once: LoopBench) -> None:
    for number in range(3):
        once.abort_next(15)
        once.send(response(f"r{number}"))
        for _ in range(20):
            once.pass_time(2)
    assert once.committed() == 3


def test_each_abort_makes_the_next_pause_longer(once: LoopBench) -> None:
    """A group that is in the middle of a rebalance needs a moment, and not a flood."""
    once.abort_next(8)
    once.send(response("r"))
    once.clock.advance(1)
    pauses = []
    for number in range(1, 9):
        began = once.clock.monotonic()
        while once.calls.count("producer.abort_transaction") < number:
            once.turn()
            once.clock.advance(0.01)
        pauses.append(once.clock.monotonic() - began)
    assert pauses[1:5] == pytest.approx([0.1, 0.2, 0.4, 0.8], abs=0.05)
    assert pauses[-1] == pytest.approx(2, abs=0.05)


def test_a_full_batch_waits_for_the_end_of_the_pause_too() -> None:
    """The limit of memory must not turn the pause into a flood, nor the pause exceed the limit."""
    once = started(LoopBench(commit_interval=60.0, max_commit_outputs=2))
    once.abort_next()
    once.send(response("a"), response("b"))
    began = once.clock.monotonic()
    once.turn()
    assert once.keys == [b"a", b"b"]
    assert once.clock.monotonic() - began == pytest.approx(0.1)


@pytest.mark.parametrize("count", [1, 30])
def test_messages_too_large_for_their_topic_are_dropped_and_counted_once(
    make: Make, count: int
) -> None:
    """Nothing of their batch was committed, so that a restart would meet them again."""
    bench = started(make(max_output_bytes=3_000))
    large = [response(f"{number}".rjust(1_000, "r")) for number in range(count)]
    bench.send(*large, response("small"))
    for _ in range(6 * count):
        bench.pass_time(2)
    assert (bench.keys, bench.committed()) == ([b"small"], count + 1)
    assert bench.totals["dropped_outputs"] == count


@pytest.mark.parametrize(
    ("call", "error", "raised"),
    [
        ("commit", failure(KafkaError.UNKNOWN_PRODUCER_ID, fatal=True), ClientsLostError),
        ("begin", failure(FENCED, fatal=True), FencedError),
    ],
)
def test_a_lost_or_fenced_producer_ends_the_loop(
    once: LoopBench, call: str, error: KafkaException, raised: type[Exception]
) -> None:
    once.fail(f"producer.{call}_transaction", error)
    once.send(response("r"))
    with pytest.raises(raised):
        once.pass_time(1)


def test_a_batch_that_is_delivered_in_the_middle_of_a_turn_does_not_end_the_service(
    once: LoopBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread may finish at any moment, also just after the loop has asked for its result."""
    with once.stuck():
        once.send(response("a"))
        once.pass_time(1)
        once.send(response("b"))
        pop_result = once.committer.pop_result

        def pop_then_deliver() -> object:
            result = pop_result()
            once.committer.is_stuck = False
            assert once.committer.wait_until_delivered(0)
            return result

        monkeypatch.setattr(once.committer, "pop_result", pop_then_deliver)
        once.pass_time(1)
    assert (once.keys, once.committed()) == ([b"a", b"b"], 2)


# Messages to skip


def test_a_message_that_the_settings_name_is_skipped_with_a_letter(make: Make) -> None:
    """It is the way out where a message crashes the service at each start."""
    bench = make(skip=(("input", 0, 1),))
    bench.send(response("a"), response("bad"), response("b"))
    bench.pass_time(1)
    assert bench.committed() == 3
    assert bench.keys == [b"a", b"b"]
    assert len(bench.letters) == 1
    assert bench.totals["message skipped(skipped_by_operator)"] == 1
    [line] = bench.log.of(LogEvent.MESSAGE_SKIPPED)
    assert (line["partition"], line["offset"]) == (0, 1)


# Events of the group


def test_what_is_revoked_is_committed_first(bench: LoopBench) -> None:
    bench.send(response("r"), chunk("open"))
    bench.revoke()
    assert (bench.keys, bench.committed()) == ([b"r"], 2)
    assert bench.checkpoint().open == ((1, 0),)
    assert bench.consumer.positions == {}


@pytest.mark.parametrize("waits_for", ["delivery", "answer"])
def test_what_is_lost_is_not_committed_any_more(repeating: LoopBench, waits_for: str) -> None:
    """Another member owns it, and may have read further."""
    if waits_for == "answer":
        repeating.consumer.answers_commits = False
        repeating.send(response("first"))
        repeating.pass_time(1)
    before = repeating.committed()
    with repeating.stuck():
        repeating.send(response("r"))
        repeating.pass_time(1)
        assert repeating.committer.busy
        if waits_for == "answer":
            repeating.committer.is_stuck = False
            repeating.pass_time(1)
        repeating.lose()
    repeating.consumer.answers_commits = True
    repeating.pass_time(10)
    assert repeating.committed() == before
    assert repeating.log.of(LogEvent.PARTITIONS_LOST)


def test_a_revoke_does_not_wait_longer_than_the_group_does(bench: LoopBench) -> None:
    with bench.stuck():
        bench.send(response("r"))
        bench.pass_time(1)
        began = bench.clock.monotonic()
        bench.revoke()
        assert bench.clock.monotonic() - began == pytest.approx(MAX_REVOKE_S)
        assert bench.committed() == 0


def test_a_revoke_waits_for_the_batch_in_flight_and_delivers_the_rest(once: LoopBench) -> None:
    """What is not committed is re-read by the next owner; here it costs nothing."""
    once.committer.is_stuck = True
    once.send(response("a"))
    once.pass_time(1)
    assert once.committer.busy
    once.send(response("b"))
    once.committer.is_stuck = False
    once.revoke()
    assert (once.keys, once.committed()) == ([b"a", b"b"], 2)
    assert once.consumer.positions == {}


def test_a_revoke_delivers_again_what_was_aborted(once: LoopBench) -> None:
    once.abort_next(2)
    once.send(response("a"), response("b"))
    once.revoke()
    assert (once.keys, once.committed()) == ([b"a", b"b"], 2)
    assert once.totals["request published"] == 2


@pytest.mark.parametrize("call_s", [0.0, 1.0])
def test_a_revoke_gives_up_at_its_deadline_where_everything_is_aborted(
    once: LoopBench, call_s: float
) -> None:
    """Aborts in quick succession must not end the service, nor slow ones hold up the group."""
    once.send(response("r"))
    once.clock.advance(0.5)
    once.broker.between = lambda call: once.clock.advance(
        call_s if call == "producer.commit_transaction" else 0
    )
    once.abort_next(1_000)
    began = once.clock.monotonic()
    once.revoke()
    assert MAX_REVOKE_S <= once.clock.monotonic() - began < MAX_REVOKE_S + 2
    assert once.committed() == 0
    assert once.consumer.positions == {}


def test_a_batch_of_a_revoked_partition_that_is_aborted_later_is_dropped(once: LoopBench) -> None:
    with once.stuck():
        once.send(response("r"))
        once.pass_time(1)
        once.revoke()
        once.abort_next()
    once.pass_time(10)
    assert once.keys == []
    assert once.totals == {}


def test_a_partition_that_stays_goes_on_after_another_was_revoked(make: Make) -> None:
    bench = started(make(partitions=2))
    bench.revoke(0)
    bench.send(response("r"), partition=1)
    bench.pass_time(1)
    assert (bench.keys, bench.committed(1)) == ([b"r"], 1)


@pytest.mark.parametrize(
    ("code", "raised", "match"),
    [
        (TIMED_OUT, UnansweredError, "no answer"),
        (KafkaError.UNSTABLE_OFFSET_COMMIT, UnansweredError, "no answer"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaException, "as the test says"),
    ],
)
def test_without_committed_offsets_the_loop_ends(
    make: Make, code: int, raised: type[Exception], match: str
) -> None:
    """Partitions would start without history; new clients end a transaction that was left open."""
    bench = make()
    bench.fail("consumer.committed", *[code] * 10_000)
    with pytest.raises(raised, match=match):
        bench.turn()


def test_a_message_of_a_partition_without_state_is_dropped_and_counted(bench: LoopBench) -> None:
    del bench.loop._assignment.partitions["input", 0]
    bench.send(response("r"))
    bench.pass_time(1)
    assert bench.keys == []
    assert bench.totals["revoked_messages"] == 1


def test_a_message_that_the_client_reads_twice_counts_once(bench: LoopBench) -> None:
    bench.send(response("a"), response("b"))
    bench.loop._assignment.read_from(("input", 0), 1)
    bench.send(response("c"))
    bench.pass_time(1)
    assert bench.keys == [b"a", b"b", b"c"]
    assert bench.totals["refetched_messages"] == 1


def test_an_empty_assignment_and_one_while_stopping_ask_the_cluster_nothing(
    bench: LoopBench,
) -> None:
    bench.revoke()
    bench.calls.clear()
    bench.consumer.call_back("assign")
    bench.stop.request("SIGTERM")
    bench.consumer.call_back("assign", 0)
    assert "consumer.committed" not in bench.calls


def test_a_stop_while_the_cluster_does_not_answer_ends_the_questions(make: Make) -> None:
    bench = make()
    bench.fail("consumer.committed", *[TIMED_OUT] * 10_000)
    bench.broker.between = lambda call: (
        bench.stop.request("SIGTERM") if call == "consumer.committed" else None
    )
    bench.turn()
    assert bench.loop._assignment.partitions == {}


def test_a_position_follows_the_end_over_marks_of_transactions(bench: LoopBench) -> None:
    """They would stay as lag."""
    bench.write(response("r"), upstream=True)
    bench.broker.init_producer("upstream", 1)  # Aborts.
    bench.turn()
    bench.pass_time(5)
    assert bench.committed() == 2


@pytest.fixture
def quiet(bench: LoopBench) -> LoopBench:
    """Return a loop with an open request at offset 0, at the end of its partition."""
    bench.send(chunk("open"))
    return bench


def test_requests_closed_in_silence_are_committed(quiet: LoopBench) -> None:
    quiet.pass_time(10)
    assert quiet.checkpoint().open == ((0, 0),)
    quiet.pass_time(120)
    quiet.pass_time(1)
    assert quiet.checkpoint().open == ()
    assert quiet.totals["request incomplete(partition_silent)"] == 1


def test_a_message_ends_the_silence(quiet: LoopBench) -> None:
    quiet.pass_time(100)
    quiet.send(chunk("open", 1))
    quiet.pass_time(100)
    assert quiet.checkpoint().open == ((0, 0),)


# Re-reading


def resumed(make: Make, *values: bytes, limit: int | None = None) -> LoopBench:
    """Return a loop that re-reads what another one has committed.

    Args:
        make: makes loops.
        values: what the other one has read.
        limit: how many messages each turn reads; all by default.

    """
    bench = make()
    bench.send(*values)
    bench.pass_time(5)
    heir = make(bench.crash())
    if limit is not None:
        heir.consumer.max_messages = limit - 1
    return heir


def test_re_read_messages_are_counted_apart_and_publish_nothing(make: Make) -> None:
    heir = resumed(make, chunk("open"), response("r"))
    heir.send(response("new"))
    heir.pass_time(1)
    assert heir.keys == [b"r", b"new"]
    assert heir.totals == {
        "message accepted": 1,
        "possible_repeats": 1,
        "request published": 1,
        "reread_messages": 2,
    }
    assert not heir.log.of(LogEvent.STATE_DIFFERS)


def test_a_committed_state_that_re_reading_does_not_find_is_logged_as_a_bug(make: Make) -> None:
    heir = resumed(make, chunk("open"), response("r"))
    [first, *_] = heir.broker.partitions["input", 0]._records
    first._content = None, native("open", sequence=0, body=whole("open")), []
    heir.send(response("new"))
    [line] = heir.log.of(LogEvent.STATE_DIFFERS)
    assert line == line | {"level": "error", "partition": 0, "requests": 1}


def test_the_progress_of_long_re_reading_is_logged(make: Make) -> None:
    heir = resumed(make, chunk("open"), *responses(9), limit=2)
    heir.turn()
    heir.clock.advance(10)
    heir.turn()
    [line] = heir.log.of(LogEvent.REREAD_PROGRESS)
    assert (line["offset"], line["position"], line["remaining"]) == (4, 10, 6)


# Offsets that are not in the log


def test_messages_deleted_before_they_were_read_leave_open_what_is_open(bench: LoopBench) -> None:
    bench.send(chunk("open"))
    bench.write(*[b""] * 49)
    bench.broker.delete_below("input", 0, 50)
    bench.turn()
    assert bench.consumer.positions == {0: 50}
    [line] = bench.log.of(LogEvent.KAFKA_ERROR)
    assert line == line | {"level": "error", "partition": 0, "offset": 1, "start_offset": 50}
    bench.send(
        native("open", sequence=1, body=last_chunk()), native("open", sequence=2, body="[DONE]")
    )
    bench.pass_time(1)
    assert (bench.keys, bench.committed()) == ([b"open"], 52)


def test_an_end_that_was_cut_off_is_where_reading_continues(bench: LoopBench) -> None:
    bench.send(*responses(10))
    bench.broker.partitions["input", 0].cut_off(6)
    bench.turn()
    assert bench.consumer.positions == {0: 6}
    bench.send(response("again"))
    bench.pass_time(1)
    assert bench.keys[-1] == b"again"
    assert bench.committed() == 7


@pytest.mark.parametrize("has_the_offset", [False, True])
def test_a_recreated_topic_is_read_from_its_start_and_open_requests_get_their_outcome(
    bench: LoopBench, *, has_the_offset: bool
) -> None:
    """Where the new topic has the next offset, no error tells that it was recreated."""
    bench.send(chunk("open"), response("r"))
    bench.recreate_topic()
    new = [response("new"), response("new 2")][: 1 + has_the_offset]
    bench.write(*new)
    bench.pass_time(10)
    [line] = bench.log.of(LogEvent.TOPIC_RECREATED)
    assert line == line | {"level": "error", "partition": 0, "offset": 2, "start_offset": 0}
    bench.pass_time(1)
    assert bench.keys == [b"r", b"new", b"new 2"][: 2 + has_the_offset]
    assert bench.totals["request incomplete(idle_timeout)"] == 1
    position = bench.position()
    assert position is not None
    assert position.offset == len(new)
    hashed = topic_hash(bench.broker.topic_id("input"))
    assert isinstance(decode(position.metadata or "", position.offset, hashed), Checkpoint)


def test_what_was_aborted_of_the_old_topic_is_delivered_with_the_new_one(once: LoopBench) -> None:
    """The messages that it came from are gone: nothing could read them again."""
    once.abort_next()
    once.send(response("old"))
    once.clock.advance(1)
    once.turn()
    once.recreate_topic()
    once.turn()
    once.pass_time(1)
    assert (once.keys, once.committed()) == ([b"old"], 0)


@pytest.mark.parametrize("is_aborted", [False, True])
def test_a_partition_that_the_recreated_topic_does_not_have_holds_up_nothing(
    *, is_aborted: bool
) -> None:
    once = started(LoopBench(partitions=2))
    once.abort_next(int(is_aborted))
    once.write(response("gone") if is_aborted else chunk("open"))
    once.send(response("kept"), partition=1)
    once.clock.advance(1)
    once.turn()
    once.recreate_topic(2)
    once.write(b"", partition=1)
    once.fail("consumer.get_watermark_offsets", *UNKNOWN_PARTITION)
    began = once.clock.monotonic()
    once.turn()
    assert once.clock.monotonic() - began < 15
    [line] = once.log.of(LogEvent.TOPIC_RECREATED)
    assert line["partition"] == 0
    assert line["error"] == "the recreated topic does not have this partition"
    once.fail("consumer.get_watermark_offsets")
    once.pass_time(1)
    assert once.keys == [b"kept"]


def test_a_stop_while_a_partition_is_relocated_is_a_stop_in_good_order(once: LoopBench) -> None:
    """The exit code would say that Kafka had failed."""
    once.send(response("r"))
    once.broker.partitions["input", 0].cut_off(0)
    once.stop.request("SIGTERM")
    once.fail("consumer.get_watermark_offsets", *[TIMED_OUT] * 10_000)
    with pytest.raises(Stopped):
        once.turn()


# Errors of the client


@pytest.mark.parametrize(
    ("code", "event"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, LogEvent.TOPIC_UNAVAILABLE),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, LogEvent.TOPIC_UNAVAILABLE),
        (KafkaError._MAX_POLL_EXCEEDED, LogEvent.KAFKA_ERROR),
    ],
)
def test_an_error_of_the_client_is_logged_and_reading_goes_on(
    bench: LoopBench, code: int, event: LogEvent
) -> None:
    bench.consumer.report(KafkaError(code))
    bench.send(response("r"))
    bench.pass_time(1)
    assert len(bench.log.of(event)) == 1
    assert bench.keys == [b"r"]


def test_a_turn_ends_in_time_and_reads_the_rest_again(
    bench: LoopBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Partition._feed

    def feed_slowly(partition: Partition, message: Message, offset: int) -> MessageResult:
        bench.clock.advance(0.3)
        return feed(partition, message, offset)

    monkeypatch.setattr(Partition, "_feed", feed_slowly)
    bench.send(*responses(100))
    # One by poll, then as many as take a second; the next is read again.
    assert bench.consumer.positions == {0: 5}
    monkeypatch.undo()
    for _ in range(10):
        bench.pass_time(1)
    assert bench.totals == {
        "message accepted": 100,
        "request published": 100,
        "slow_messages": 5,
    }
    assert [line["offset"] for line in bench.log.of(LogEvent.MESSAGE_SLOW)] == [0, 1, 2, 3, 4]


def test_after_a_long_turn_fewer_messages_are_asked_for(bench: LoopBench) -> None:
    turn = bench.loop._feed.turn
    turn.begin()
    bench.clock.advance(2.5)
    turn.end(1000)
    assert turn.messages == 100
    turn.begin()
    bench.clock.advance(0.1)
    turn.end(100)
    assert turn.messages == 200


def test_a_stop_ends_a_turn_with_the_messages_at_hand(
    bench: LoopBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Partition._feed

    def feed_and_stop(partition: Partition, message: Message, offset: int) -> MessageResult:
        if offset == 3:
            bench.stop.request("SIGTERM")
        return feed(partition, message, offset)

    monkeypatch.setattr(Partition, "_feed", feed_and_stop)
    bench.send(*responses(100))
    assert bench.loop._assignment.partitions["input", 0].core.position == 65


# As the client reports it: the error does not call itself fatal, and has a code of its own.
REPLACED = KafkaError(
    KafkaError._FATAL,
    "Fatal error: Broker: Static consumer fenced by other consumer with same group.instance.id",
)


@pytest.mark.parametrize(
    ("error", "raised", "match"),
    [
        (KafkaError(KafkaError._FATAL, "the end"), ClientsLostError, "consumer: the end"),
        (KafkaError(1, "the end", True), ClientsLostError, "consumer: the end"),
        (
            KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED),
            KafkaFailureError,
            "Group authorization failed",
        ),
    ],
)
def test_an_error_from_which_the_consumer_cannot_go_on_ends_the_loop(
    bench: LoopBench, error: KafkaError, raised: type[Exception], match: str
) -> None:
    """It reads nothing any more, and reports that only once."""
    bench.consumer.report(error)
    with pytest.raises(raised, match=match):
        bench.turn()


def test_a_consumer_whose_instance_id_another_one_has_ends_the_service(make: Make) -> None:
    """With new clients the two would fence each other for ever."""
    bench = make(kafka_consumer={"group.instance.id": "mine"})
    bench.consumer.report(REPLACED)
    with pytest.raises(FencedError, match=r"group\.instance\.id"):
        bench.turn()


def test_a_bug_names_the_message_that_it_comes_with(
    bench: LoopBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.send(*responses(7))

    def broken(_message: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(bench.partition().core, "_open_message", broken)
    with pytest.raises(ZeroDivisionError) as raised:
        bench.send(response("r"))
    assert raised.value.__notes__ == [
        "at input:0:7; to pass over this message, add 'input:0:7' to skip"
    ]


# The end


def running(bench: LoopBench, *values: bytes) -> LoopBench:
    """Let the loop run by itself until it has read what is written."""
    bench.write(*values)
    bench.consumer.on_idle = lambda: bench.stop.request("SIGTERM")
    return bench


def test_a_stop_delivers_commits_and_leaves_the_group(make: Make) -> None:
    bench = running(make(), response("r"), chunk("open"))
    bench.loop.run()
    assert (bench.keys, bench.committed()) == ([b"r"], 2)
    assert bench.consumer.is_closed
    assert bench.log.of(LogEvent.SHUTDOWN_REQUESTED)[0]["reason"] == "SIGTERM"
    assert bench.totals == {"message accepted": 2, "request published": 1}


def test_a_stop_repeats_a_commit_that_the_group_rejected() -> None:
    bench = running(LoopBench(delivery="at_least_once"), response("r"))
    bench.fail("consumer.commit", KafkaError.REBALANCE_IN_PROGRESS)
    bench.loop.run()
    assert bench.committed() == 1


def test_a_stop_delivers_again_what_was_aborted() -> None:
    bench = running(LoopBench(), response("r"))
    bench.fail("producer.send_offsets_to_transaction", *[ABORTED] * 2)
    bench.loop.run()
    assert (bench.keys, bench.committed()) == ([b"r"], 1)
    assert bench.consumer.is_closed


@pytest.mark.parametrize(
    ("delivery", "missing"),
    [
        ("at_least_once", "acknowledgement"),
        ("at_least_once", "answer to the commit"),
        ("exactly_once", "end of the transaction"),
    ],
)
def test_a_stop_without_a_broker_ends_in_time(delivery: str, missing: str) -> None:
    """Closing waits long for a commit in flight; brokers or the next start end a transaction."""
    bench = running(started(LoopBench(delivery=delivery)), response("r"))
    bench.consumer.on_poll = bench.clock.advance
    bench.committer.is_stuck = missing != "answer to the commit"
    bench.consumer.answers_commits = missing != "answer to the commit"
    began = bench.clock.monotonic()
    bench.loop._run_once()
    bench.loop._shut_down()
    assert bench.clock.monotonic() - began == pytest.approx(10, abs=1)
    assert bench.consumer.is_closed is (delivery == "exactly_once")
    if delivery == "at_least_once":
        [line] = bench.log.of(LogEvent.COMMIT_FAILED)
        assert line["error"] == "the broker had not answered the commit when the service stopped"
    if missing != "answer to the commit":
        assert bench.committed() == 0


def test_a_loop_says_whether_it_has_delivered_anything(make: Make) -> None:
    """By this the service tells one that gets nowhere from one that does."""
    bench = make()
    bench.turn()
    assert not bench.loop.has_delivered
    bench.turn()
    assert bench.loop.has_delivered


def test_outcomes_are_counted_once_though_the_clients_were_replaced() -> None:
    first = LoopBench()
    first.send(response("a"))
    first.pass_time(1)
    first.send(response("b"))  # Lost with its clients before it was delivered.
    second = LoopBench(first.crash(), metrics=first.metrics)
    second.turn()
    second.pass_time(1)
    assert first.totals["request published"] == 2
    assert first.totals["message accepted"] == 2


def test_a_failure_leaves_the_group_without_a_commit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the other members need not wait for the end of its session."""
    bench = running(make(), response("r"))
    monkeypatch.setattr(bench.committer._delivery, "deliver", _refuse)
    with pytest.raises(DeliveryError):
        bench.loop.run()
    assert bench.consumer.is_closed
    assert bench.consumer.positions == {}
    assert bench.committed() is None


def _refuse(_batch: object) -> Any:
    raise DeliveryError


def test_a_failure_on_the_way_out_does_not_hide_the_first() -> None:
    bench = LoopBench()
    bench.consumer.report(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "the first"))
    bench.fail("consumer.close", WAIT_COORD)
    with pytest.raises(KafkaFailureError, match="the first"):
        bench.loop.run()


@pytest.mark.parametrize(("answered_after_s", "closed_after_s"), [(3, 3), (1_000, 45)])
def test_lost_clients_leave_the_group_once_their_join_is_answered(
    answered_after_s: int, closed_after_s: int
) -> None:
    """A broker ignores a leave before that, and the group waits for the end of the session."""
    bench = LoopBench()
    bench.consumer.is_expelled = True
    began = bench.clock.monotonic()
    polls: list[float] = []

    def on_poll(timeout: float) -> None:
        bench.clock.advance(timeout)
        polls.append(bench.clock.monotonic() - began)
        bench.consumer.is_expelled = polls[-1] < answered_after_s
        if len(polls) == 1:
            raise ClientsLostError("as the test says")

    bench.consumer.on_poll = on_poll
    with pytest.raises(ClientsLostError):
        bench.loop.run()
    assert bench.consumer.is_closed
    assert polls[-1] == pytest.approx(closed_after_s, abs=0.3)


# What hangs


def test_a_batch_whose_call_never_returns_does_not_hold_up_the_service_for_ever(
    once: LoopBench,
) -> None:
    """librdkafka may wait without end, whatever timeout it was given."""
    with once.stuck():
        once.send(response("r"))
        once.pass_time(1)
        assert once.committer.busy
        once.clock.advance(14)
        once.turn()
        once.clock.advance(2)
        with pytest.raises(UnansweredError, match="delivery of a batch: timed out after 15 s"):
            once.turn()


def test_a_batch_waits_for_its_broker_as_long_as_no_broker_answers(once: LoopBench) -> None:
    """New clients could do nothing either, and would lose what these may still do."""
    once.send(response("r"))
    with once.stuck():
        once.pass_time(1)
        once.broker.away = True
        for _ in range(100):
            once.pass_time(10)
        once.broker.away = False
    once.pass_time(1)
    assert once.keys == [b"r"]


def test_without_transactions_a_batch_may_wait_for_its_broker_as_long_as_it_takes(
    repeating: LoopBench,
) -> None:
    with repeating.stuck():
        repeating.send(response("r"))
        repeating.pass_time(1)
        repeating.pass_time(3_600)
        assert repeating.committer.busy


def test_the_loop_joins_the_group_once_the_producer_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Committed offsets are not stable before that."""
    bench = running(LoopBench(), response("r"))
    bench.committer.is_stuck = True
    wait = bench.committer.wait_until_started

    def wait_twice(timeout_s: float) -> bool:
        assert not wait(timeout_s)
        assert "consumer.subscribe" not in bench.calls
        bench.committer.is_stuck = False
        return wait(timeout_s)

    monkeypatch.setattr(bench.committer, "wait_until_started", wait_twice)
    bench.loop.run()
    assert bench.keys == [b"r"]


def test_a_producer_that_does_not_become_ready_though_brokers_answer_is_replaced() -> None:
    bench = LoopBench()
    bench.committer.is_stuck = True
    began = bench.clock.monotonic()
    with pytest.raises(UnansweredError, match="start of the producer"):
        bench.loop.run()
    assert 15 <= bench.clock.monotonic() - began < 20
    assert not bench.loop.has_joined


# Waiting for partitions


def test_a_member_without_partitions_logs_now_and_then_that_it_waits(make: Make) -> None:
    """After a kill the group waits for the dead member, and nothing else would be logged."""
    bench = make()
    bench.start()
    bench.broker.away = True
    bench.turn()
    assert not bench.log.of(LogEvent.WAITING_FOR_PARTITIONS)
    for _ in range(14):
        bench.pass_time(11)
    assert len(bench.log.of(LogEvent.WAITING_FOR_PARTITIONS)) == 3


def test_a_member_waits_after_it_has_lost_its_partitions_and_not_before(bench: LoopBench) -> None:
    bench.pass_time(11)
    assert not bench.log.of(LogEvent.WAITING_FOR_PARTITIONS)
    bench.lose()
    bench.pass_time(11)
    assert bench.log.of(LogEvent.WAITING_FOR_PARTITIONS)


def test_the_offsets_at_which_partitions_without_a_commit_start_are_logged(make: Make) -> None:
    bench = make()
    bench.write(*responses(9))
    bench.broker.delete_below("input", 0, 5)
    bench.turn()
    [line] = bench.log.of(LogEvent.PARTITIONS_ASSIGNED)
    assert line["start_offsets"] == {"input:0": 5}


# Metrics

VLLM = {"engine": "vllm", "model": "demo-8b"}


def test_outcomes_of_an_aborted_batch_count_once(once: LoopBench) -> None:
    once.abort_next(3)
    once.send(response("a"), b"{broken")
    once.pass_time(1)
    assert once.metric("transactions_total", result="aborted") == 1
    assert once.metric("draft_tokens_total", **VLLM) is None
    for _ in range(4):
        once.pass_time(2)
    once.send(response("b"))
    once.pass_time(1)
    assert once.totals == {
        "message accepted": 2,
        "message bad_payload(invalid_json)": 1,
        "request published": 2,
    }
    assert once.metric("transactions_total", result="aborted") == 3
    assert once.metric("requests_total", **VLLM, outcome="published", reason="") == 2
    assert once.metric("draft_tokens_total", **VLLM) == 48
    assert once.metric("step_accepted_draft_tokens_count", **VLLM) == 16
    assert once.metric("dead_letters_total", kind="message", reason="invalid_json") == 1
    assert once.metric("publish_delay_seconds_count") == 2


def test_messages_are_counted_by_their_envelope(bench: LoopBench) -> None:
    bare = msgspec.json.encode(whole("bare"))
    bench.send(chunk("open"), chunk("open", 1), bare, b"{broken")
    bench.pass_time(1)
    for envelope, outcome, reason, expected in (
        ("native", "accepted", "", 2),
        ("body", "accepted", "", 1),
        ("unknown", "bad_payload", "invalid_json", 1),
    ):
        labels = {"envelope": envelope, "outcome": outcome, "reason": reason}
        assert bench.metric("messages_total", **labels) == expected


def test_a_commit_is_timed_from_its_hand_over_to_the_answer(once: LoopBench) -> None:
    with once.stuck():
        once.send(response("r"))
        once.pass_time(1)
        once.clock.advance(7)
    once.turn()
    assert once.metric("commit_duration_seconds_bucket", le="5.0") == 1  # Of the first position.
    assert once.metric("commit_duration_seconds_bucket", le="10.0") == 2


def test_the_gauges_show_what_is_assigned(bench: LoopBench) -> None:
    bench.send(chunk("open"))
    bench.write(*responses(8), upstream=True)  # What an open transaction hides is lag.
    bench.pass_time(5)
    bench.pass_time(5)
    assert bench.metric("assigned_partitions") == 1
    assert bench.metric("open_requests") == 1
    assert bench.metric("consumer_lag_messages", topic="input", partition="0") == 8


def test_a_revoked_partition_has_no_lag_any_more(make: Make) -> None:
    bench = started(make(partitions=2))
    bench.pass_time(5)
    labels = {"topic": "input", "partition": "1"}
    assert bench.metric("consumer_lag_messages", **labels) == 0
    bench.revoke(1)
    bench.pass_time(1)
    assert bench.metric("consumer_lag_messages", **labels) is None
    assert bench.metric("assigned_partitions") == 1


def test_what_is_still_to_be_re_read_is_shown_and_is_not_lag(make: Make) -> None:
    heir = resumed(make, chunk("open"), response("r"), limit=1)
    heir.turn()
    expected = {
        "rereading_partitions": 1,
        "reread_remaining_messages": 1,
        "reread_messages_total": 1,
    }
    assert {name: heir.metric(name) for name in expected} == expected
    assert heir.metric("consumer_lag_messages", topic="input", partition="0") == 0
    heir.write(response("new"))
    heir.pass_time(5)
    heir.pass_time(5)
    expected = {
        "rereading_partitions": 0,
        "reread_remaining_messages": 0,
        "reread_messages_total": 2,
    }
    assert {name: heir.metric(name) for name in expected} == expected


def test_rebalances_are_counted(make: Make) -> None:
    bench = started(make(partitions=3))
    bench.revoke(1)
    bench.lose(2)
    assert bench.metric("rebalances_total", event="assigned") == 1
    assert bench.metric("rebalances_total", event="revoked") == 1
    assert bench.metric("rebalances_total", event="lost") == 1
