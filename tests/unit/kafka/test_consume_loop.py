"""The Kafka loop, turned by hand: what a real broker cannot be made to do when a test wants it."""

import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from consumer.core.checkpoint import Checkpoint, decode, topic_hash
from consumer.kafka.assignment import Clients, Telemetry
from consumer.kafka.at_least_once import AtLeastOnce, ConsumerOffsetCommits
from consumer.kafka.committer import Committer
from consumer.kafka.consume_loop import ConsumeLoop
from consumer.kafka.context import Context
from consumer.kafka.delivery import OffsetCommits
from consumer.kafka.errors import (
    ClientsLostError,
    DeliveryError,
    FencedError,
    KafkaFailureError,
    Stopped,
    UnansweredError,
)
from consumer.kafka.exactly_once import ExactlyOnce, TransactionalOffsetCommits
from consumer.kafka.partition_monitor import PartitionMonitor
from consumer.kafka.partition_start import PartitionStarter
from consumer.kafka.sender import Sender
from consumer.kafka.stall_guard import StallGuard
from consumer.settings.settings import Settings
from consumer.telemetry.health import Health
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_counts import totals_by_name
from consumer.telemetry.outcome_reporter import OutcomeReporter
from consumer.telemetry.stop import Stop
from tests.support.manual_clock import ManualClock
from tests.unit.core.made import chunk as body_chunk
from tests.unit.core.made import last_chunk, native, pipeline, whole
from tests.unit.kafka.fakes import (
    FENCED,
    HASH,
    TIMED_OUT,
    WAIT_COORD,
    FakeConsumer,
    FakeMessage,
    FakeProducer,
    FakeTopics,
    Log,
    at,
    end,
    failure,
    group_metadata,
)

SECONDS = 10
GRACE_S = 5.0
ABORTED = failure(KafkaError.ILLEGAL_GENERATION, abortable=True)


def chunk(request_id: str, sequence: int = 0) -> bytes:
    return native(request_id, sequence=sequence, body=body_chunk())


def response(request_id: str) -> bytes:
    return native(request_id, body=whole(request_id))


class Turned:
    """A service whose clock, broker and loop are in the hand of the test."""

    def __init__(
        self,
        *,
        skip: tuple[tuple[str, int, int], ...] = (),
        metrics: Metrics | None = None,
        **settings: Any,
    ) -> None:
        defaults: dict[str, Any] = {
            "topics": ("input",),
            "commit_interval": 1.0,
            "shutdown_timeout": 10.0,
        }
        self.settings = Settings(**defaults | settings)
        self.clock, self.log, self.stop = ManualClock(), Log(), Stop()
        self.health = Health(self.stop, self.settings.shutdown_timeout, self.clock, self.log)
        self.consumer, self.producer = FakeConsumer(), FakeProducer()
        self.topics = FakeTopics()
        self.metrics = metrics or Metrics()
        self.transactional = self.settings.delivery == "exactly_once"
        self.brokers_answer = True
        self.patience = StallGuard(
            15.0 if self.transactional else math.inf,
            lambda _seconds: self.brokers_answer,
            self.clock,
            self.log,
        )
        sender = Sender(
            cast("Producer", self.producer),
            {"record": "records", "dead_letter": "dead"},
            self.log,
            transactional=self.transactional,
        )
        if self.transactional:
            transactions = ExactlyOnce(
                cast("Producer", self.producer), sender, "mine", 15.0, b"", self.clock, self.log
            )
            self.producer.stored = self.consumer.stored
            self.committer = Committer(transactions, self.clock)
        else:
            self.committer = Committer(AtLeastOnce(sender), self.clock)
        self.offsets: OffsetCommits = (
            TransactionalOffsetCommits() if self.transactional else ConsumerOffsetCommits(self.log)
        )
        self.consumer.on_commit = self.offsets.on_commit
        reporter = OutcomeReporter(
            dead_letters="full",
            record_limit=1_000_000,
            letter_limit=1_000_000,
            preview=0,
            clock=self.clock,
            log=self.log,
        )
        real = cast("Consumer", self.consumer)
        context = Context(self.settings, self.clock, self.log, self.stop)
        starter = PartitionStarter(
            context, pipeline(skip=frozenset(skip)), real, self.topics, {"input": 100}
        )
        monitor = PartitionMonitor(context, real, self.topics)
        self.service = ConsumeLoop(
            context,
            Clients(real, self.committer, self.offsets, starter, monitor),
            Telemetry(reporter, self.metrics, self.health),
            self.patience,
        )
        self.by_hand = False

    def assign(self, *partitions: int) -> None:
        """Give partitions to the service, as the group would."""
        self.consumer.assign_at_poll = [at(-1001, partition) for partition in partitions]
        self.turn()

    def revoke(self, *partitions: int) -> None:
        self.call("on_revoke", *(at(-1001, one) for one in partitions or [0]))

    def lose(self, *partitions: int) -> None:
        self.call("on_lost", *(at(-1001, one) for one in partitions or [0]))

    def call(self, callback: str, *partitions: TopicPartition) -> None:
        """Call a callback of the group, as the client does while it polls."""
        self.join()
        self.consumer.callbacks[callback](self.consumer, list(partitions))

    def join(self) -> None:
        if not self.consumer.callbacks:
            self.service._membership.join()

    def turn(self, *incoming: FakeMessage) -> None:
        """Turn the loop once, and wait for what it has set going."""
        if not self.by_hand:
            self.join()
            self.committer.start()
            assert self.committer.wait_until_started(SECONDS)
            self.producer.calls.clear()
            self.by_hand = True
        self.consumer.incoming += incoming
        self.service._turn()
        if not self.producer.stuck:
            assert self.committer.wait_until_delivered(SECONDS)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and the loop turn often enough that commits are made and answered."""
        self.clock.advance(seconds)
        for _ in range(3):
            self.turn()

    def send(self, *values: bytes, first: int, partition: int = 0) -> None:
        self.turn(
            *(FakeMessage(value, offset, partition) for offset, value in enumerate(values, first))
        )

    def aborts(self, times: int = 1) -> None:
        """Let the next transactions come to nothing."""
        self.producer.failures["commit_transaction"] = [ABORTED] * times

    def committed(self, partition: int = 0) -> int | None:
        found = self.consumer.stored.get(partition)
        return None if found is None else found.offset

    def checkpoint(self, partition: int = 0) -> Checkpoint:
        found = self.consumer.stored[partition]
        checkpoint = decode(found.metadata or "", found.offset, HASH)
        assert isinstance(checkpoint, Checkpoint)
        return checkpoint

    @property
    def commits(self) -> list[list[TopicPartition]]:
        return self.producer.commits if self.transactional else self.consumer.commits

    @property
    def keys(self) -> list[bytes]:
        return [message["key"] for message in self.producer.delivered]

    @property
    def totals(self) -> dict[str, int]:
        return totals_by_name(self.metrics.totals)


Maker = Callable[..., Turned]


@pytest.fixture(params=["exactly_once", "at_least_once"])
def delivery(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make() -> Iterator[Maker]:
    made: list[Turned] = []

    def maker(**settings: Any) -> Turned:
        made.append(Turned(**settings))
        return made[-1]

    yield maker
    for turned in made:
        turned.committer.stop()


@pytest.fixture
def make_either(make: Maker, delivery: str) -> Maker:
    """Return a maker of services of one kind of delivery and of the other."""
    return lambda **settings: make(delivery=delivery, **settings)


@pytest.fixture
def turned(make_either: Maker) -> Turned:
    """Return a service of either delivery with one partition, read up to offset 0."""
    turned = make_either()
    turned.assign(0)
    return turned


@pytest.fixture
def once(make: Maker) -> Turned:
    """Return the same with transactions."""
    turned = make()
    turned.assign(0)
    return turned


@pytest.fixture
def repeating(make: Maker) -> Turned:
    """Return the same whose positions are committed by the consumer, after the records."""
    turned = make(delivery="at_least_once")
    turned.assign(0)
    return turned


# What is committed, and when


def test_a_first_position_is_committed_before_the_interval_is_over(turned: Turned) -> None:
    """The next start would take another one, where `start` is latest."""
    turned.turn()
    assert turned.committed() == 0


def test_a_partition_that_comes_later_does_not_wait_either(turned: Turned) -> None:
    turned.pass_time(1)
    turned.clock.advance(0.1)
    turned.assign(1)
    turned.turn()
    assert turned.committed(1) == 0


def test_records_are_delivered_before_their_position_is_committed(turned: Turned) -> None:
    turned.producer.stuck = True
    turned.send(response("r"), first=0)
    turned.pass_time(1)
    assert turned.committed() == 0
    turned.producer.stuck = False
    assert turned.committer.wait_until_delivered(SECONDS)
    turned.turn()
    assert (turned.keys, turned.committed()) == ([b"r"], 1)


def test_open_requests_are_committed_with_the_place_where_they_began(turned: Turned) -> None:
    turned.send(response("r"), chunk("open"), chunk("open", 1), first=0)
    turned.pass_time(1)
    assert turned.committed() == 3
    assert turned.checkpoint().open == ((1, 0),)


def test_nothing_is_committed_where_nothing_has_changed(turned: Turned) -> None:
    turned.send(response("r"), first=0)
    turned.pass_time(1)
    before = len(turned.commits)
    for _ in range(50):
        turned.pass_time(10)
    assert len(turned.commits) == before


def test_a_position_without_an_outcome_is_committed_after_a_while_and_once(
    turned: Turned,
) -> None:
    turned.turn()
    before = len(turned.commits)
    turned.send(chunk("open"), first=0)
    turned.pass_time(1)
    assert len(turned.commits) == before
    for _ in range(10):
        turned.pass_time(5)
    assert len(turned.commits) == before + 1
    assert turned.committed() == 1


def test_only_partitions_with_an_outcome_take_part_in_a_commit(make_either: Maker) -> None:
    turned = make_either()
    turned.assign(0, 1)
    turned.turn()
    turned.turn(FakeMessage(response("r"), 0, 0), FakeMessage(chunk("open"), 0, 1))
    turned.pass_time(1)
    assert [one.partition for one in turned.commits[-1]] == [0]


def test_a_partition_that_is_read_again_is_not_committed_by_revoke_and_shutdown_either(
    make_either: Maker,
) -> None:
    turned = make_either()
    turned.assign(0)
    turned.send(chunk("open"), *(response(f"r{n}") for n in range(9)), first=0)
    turned.pass_time(1)
    before = turned.consumer.stored[0]

    heir = make_either()
    heir.consumer.stored[0] = before
    heir.consumer.watermarks[0] = 0, 10
    heir.assign(0)
    assert heir.consumer.assigned == {0: 0}
    heir.send(*(chunk("open") if not n else response(f"r{n - 1}") for n in range(9)), first=0)
    heir.pass_time(60)
    heir.revoke()
    assert heir.commits == []
    assert heir.keys == []


def test_the_group_hears_of_outcomes_again_when_it_did_not_take_them(repeating: Turned) -> None:
    repeating.turn()
    repeating.send(response("r"), first=0)
    repeating.consumer.failures["commit"] = [failure(KafkaError.REBALANCE_IN_PROGRESS)]
    repeating.pass_time(1)
    assert repeating.committed() == 0
    repeating.pass_time(1)
    assert repeating.committed() == 1
    assert repeating.keys == [b"r"], "delivered once"


def test_commits_do_not_pile_up_while_none_is_answered(repeating: Turned) -> None:
    repeating.pass_time(0)
    before = len(repeating.commits)
    repeating.consumer.answers_commits = False
    for offset in range(20):
        repeating.send(response(f"r{offset}"), first=offset)
        repeating.pass_time(1)
    assert len(repeating.commits) == before + 1
    repeating.consumer.answers_commits = True
    repeating.pass_time(1)
    assert repeating.committed() == 20


def test_a_commit_that_the_group_forbids_ends_the_loop(repeating: Turned) -> None:
    repeating.send(response("r"), first=0)
    repeating.consumer.failures["commit"] = [failure(KafkaError.GROUP_AUTHORIZATION_FAILED)]
    with pytest.raises(KafkaException):
        repeating.pass_time(1)


def test_a_full_batch_does_not_wait_for_its_interval(make_either: Maker) -> None:
    turned = make_either(commit_interval=60.0, commit_events=3)
    turned.assign(0)
    turned.send(*(response(f"r{n}") for n in range(3)), first=0)
    assert len(turned.keys) == 3


def test_large_outputs_make_a_full_batch_too(
    make_either: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters of half a megabyte would fill the memory long before their number counts."""
    monkeypatch.setattr("consumer.kafka.commit_cycle._MAX_OUTPUT_BYTES", 100_000)
    turned = make_either(commit_interval=60.0)
    turned.assign(0)
    turned.send(b"{broken" * 5_000, first=0)
    assert turned.producer.delivered == []
    turned.send(b"{broken" * 5_000, b"{broken" * 5_000, first=1)
    assert len(turned.producer.delivered) == 3


def test_while_records_find_no_broker_reading_pauses_and_the_group_is_still_polled(
    make_either: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer.kafka.consume_loop._POLL_S", 0.01)
    turned = make_either(commit_interval=60.0, commit_events=1)
    turned.assign(0)
    turned.producer.stuck = True
    turned.send(response("a"), first=0)
    assert turned.committer.busy

    polled = 0

    def poll(_timeout: float) -> FakeMessage | None:
        nonlocal polled
        polled += 1
        if polled == 3:
            turned.producer.stuck = False
        return FakeMessage(response("late"), 2) if polled == 2 else None

    monkeypatch.setattr(turned.consumer, "poll", poll)
    turned.consumer.incoming = []
    turned.service._feed.feed([FakeMessage(response("b"), 1)])
    turned.service._assignment.report_outcomes()
    turned.service._wait_for_committer()
    assert turned.consumer.paused == [True, False]
    assert polled >= 3
    turned.turn()
    assert turned.keys == [b"a", b"b", b"late"], "the next commit holds all that was read meanwhile"


# Transactions


def test_records_and_positions_are_handed_over_together(once: Turned) -> None:
    once.send(response("r"), chunk("open"), first=0)
    once.pass_time(1)
    assert once.producer.calls[-4:] == [
        "begin_transaction",
        "produce r",
        "send_offsets_to_transaction",
        "commit_transaction",
    ]
    assert once.committed() == 2
    assert once.consumer.commits == [], "the consumer commits nothing itself"


def test_each_batch_has_the_membership_of_its_own_moment(once: Turned) -> None:
    """Brokers refuse a commit of an earlier generation, and take that of the current one."""
    once.turn()
    before = len(once.producer.groups)
    for offset, generation in enumerate((5, 6)):
        once.consumer.generation = generation
        once.send(response(f"r{offset}"), first=offset)
        once.pass_time(1)
    assert once.producer.groups[before:] == [group_metadata(5), group_metadata(6)]


def test_nothing_is_handed_over_by_a_consumer_that_is_no_member(once: Turned) -> None:
    """Brokers would take its commit, over that of whoever has the partition by now."""
    once.turn()
    calls = list(once.producer.calls)
    once.consumer.generation = -1
    once.send(response("r"), first=0)
    once.pass_time(1)
    once.revoke()
    assert once.producer.calls == calls


def test_what_was_not_handed_over_goes_out_when_the_consumer_is_a_member_again(
    once: Turned,
) -> None:
    once.turn()
    once.consumer.generation = -1
    once.send(response("r"), first=0)
    once.pass_time(1)
    once.consumer.generation = 7
    once.pass_time(0)
    assert (once.keys, once.committed()) == ([b"r"], 1)


def test_a_position_has_the_leader_epoch_of_the_last_message(turned: Turned) -> None:
    """By it the client notices that a log was cut off below the position."""
    turned.turn(FakeMessage(response("a"), 0, leader_epoch=3))
    turned.turn(FakeMessage(response("b"), 1, leader_epoch=4))
    turned.pass_time(1)
    assert turned.consumer.stored[0].leader_epoch == 4


def test_a_position_without_a_message_has_no_leader_epoch(turned: Turned) -> None:
    turned.turn()
    assert turned.consumer.stored[0].leader_epoch is None


def test_what_was_aborted_goes_out_before_what_came_since_and_nothing_is_read_again(
    once: Turned,
) -> None:
    once.turn()
    assigned = dict(once.consumer.assigned)
    once.aborts()
    once.send(response("a"), response("b"), first=0)
    once.clock.advance(1)
    once.turn()
    assert once.keys == []
    once.send(response("c"), first=2)
    once.pass_time(1)
    assert (once.keys, once.committed()) == ([b"a", b"b", b"c"], 3)
    assert once.consumer.assigned == assigned


def test_an_aborted_position_is_committed_again_though_nothing_has_come_since(
    once: Turned,
) -> None:
    once.turn()
    once.aborts()
    once.send(chunk("open"), first=0)
    once.pass_time(5)
    once.pass_time(1)
    assert once.committed() == 1


def test_outcomes_of_an_aborted_batch_count_once(once: Turned) -> None:
    once.aborts(3)
    once.send(response("a"), b"{broken", first=0)
    for _ in range(4):
        once.pass_time(2)
    once.pass_time(1)
    assert once.totals == {
        "message accepted": 1,
        "message bad_payload(invalid_json)": 1,
        "request published": 1,
    }


def test_outcomes_count_only_once_they_are_delivered(turned: Turned) -> None:
    """Else a restart would count again what it reads again."""
    turned.producer.stuck = True
    turned.send(response("r"), first=0)
    turned.pass_time(1)
    assert turned.totals == {}
    turned.producer.stuck = False
    assert turned.committer.wait_until_delivered(SECONDS)
    turned.turn()
    assert turned.totals == {"message accepted": 1, "request published": 1}


def test_an_aborted_part_of_a_partition_that_was_lost_meanwhile_is_dropped(make: Maker) -> None:
    """Its new owner reads the same messages, and its record would be there twice."""
    once = make()
    once.assign(0, 1)
    once.turn()
    once.aborts()
    once.turn(FakeMessage(response("lost"), 0, 0), FakeMessage(response("kept"), 0, 1))
    once.clock.advance(1)
    once.turn()
    once.lose(0)
    once.pass_time(1)
    once.pass_time(1)
    assert once.keys == [b"kept"]
    assert (once.committed(0), once.committed(1)) == (0, 1)
    assert once.totals["request published"] == 1


def test_an_aborted_part_of_a_partition_that_came_back_meanwhile_is_dropped_too(
    once: Turned,
) -> None:
    """It is read again from its commit, so that the record would be there twice."""
    once.turn()
    once.aborts()
    once.send(response("r"), first=0)
    once.clock.advance(1)
    once.turn()
    once.lose(0)
    once.consumer.watermarks[0] = 0, 1
    once.call("on_assign", at(-1001))
    once.send(response("r"), first=0)
    once.pass_time(1)
    once.pass_time(1)
    assert once.keys == [b"r"]


def _turn_often(turned: Turned) -> None:
    for _ in range(100):
        turned.pass_time(2)


def test_transactions_that_come_to_nothing_again_and_again_end_the_service(once: Turned) -> None:
    """So that somebody sees it; the committed state stays as it is."""
    once.turn()
    once.aborts(1_000)
    once.send(response("r"), first=0)
    with pytest.raises(
        KafkaFailureError, match="consecutive transactions were aborted; last error: as the test"
    ):
        _turn_often(once)
    assert once.producer.calls.count("abort_transaction") == 21
    assert once.committed() == 0


def test_a_delivery_ends_the_row_of_those_that_came_to_nothing(once: Turned) -> None:
    for offset in range(3):
        once.aborts(15)
        once.send(response(f"r{offset}"), first=offset)
        for _ in range(20):
            once.pass_time(2)
    assert once.committed() == 3


def test_after_an_abort_the_next_try_waits_longer_and_longer(once: Turned) -> None:
    """A group that is in the middle of a rebalance needs a moment, and not a flood."""
    once.turn()
    once.aborts(8)
    once.send(response("r"), first=0)
    once.clock.advance(1)
    waited = []
    for number in range(1, 9):
        begun = once.clock.monotonic()
        while once.producer.calls.count("abort_transaction") < number:
            once.turn()
            once.clock.advance(0.01)
        waited.append(once.clock.monotonic() - begun)
    assert waited[1:5] == pytest.approx([0.1, 0.2, 0.4, 0.8], abs=0.05)
    assert waited[-1] == pytest.approx(2, abs=0.05)


def test_a_full_batch_waits_out_the_pause_after_an_abort_too(make: Maker) -> None:
    """The limit of memory must not turn the pause into a flood, nor the pause break the limit."""
    once = make(commit_interval=60.0, commit_events=2)
    once.assign(0)
    once.turn()
    once.aborts()
    once.send(response("a"), response("b"), first=0)
    begun = once.clock.monotonic()
    once.turn()
    assert once.keys == [b"a", b"b"]
    assert once.clock.monotonic() - begun == pytest.approx(0.1)


def test_a_message_too_large_for_its_topic_is_counted_once(turned: Turned) -> None:
    turned.producer.refused_at_once[b"large"] = KafkaError.MSG_SIZE_TOO_LARGE
    turned.send(response("large"), response("small"), first=0)
    turned.pass_time(1)
    turned.pass_time(10)
    assert turned.keys == [b"small"]
    assert turned.totals["dropped_outputs"] == 1


def test_many_messages_too_large_for_their_topic_do_not_end_the_service(once: Turned) -> None:
    """Nothing of their batch was committed, so that a restart would meet them again."""
    once.turn()
    keys = [f"r{number}" for number in range(30)]
    once.producer.refused_at_once = {key.encode(): KafkaError.MSG_SIZE_TOO_LARGE for key in keys}
    once.send(*map(response, keys), response("small"), first=0)
    for _ in range(60):
        once.pass_time(2)
    assert (once.keys, once.committed()) == ([b"small"], 31)


def test_a_producer_that_is_lost_ends_the_loop_for_new_clients(once: Turned) -> None:
    once.turn()
    once.clock.advance(1)
    once.producer.failures["commit_transaction"] = [
        failure(KafkaError.UNKNOWN_PRODUCER_ID, fatal=True)
    ]
    once.send(response("r"), first=0)
    with pytest.raises(ClientsLostError):
        once.pass_time(1)


def test_a_rival_of_the_same_transactional_id_ends_the_loop(once: Turned) -> None:
    once.turn()
    once.producer.failures["begin_transaction"] = [failure(FENCED, fatal=True)]
    once.send(response("r"), first=0)
    with pytest.raises(FencedError):
        once.pass_time(1)


def test_a_batch_that_is_done_in_the_middle_of_a_turn_does_not_end_the_service(
    once: Turned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread may finish at any moment, also just after the loop has asked what became of it."""
    once.turn()
    once.producer.stuck = True
    once.send(response("a"), first=0)
    once.pass_time(1)
    once.send(response("b"), first=1)
    settled = once.committer.pop_result

    def settled_then_done() -> object:
        result = settled()
        once.producer.stuck = False
        assert once.committer.wait_until_delivered(SECONDS)
        return result

    monkeypatch.setattr(once.committer, "pop_result", settled_then_done)
    once.pass_time(1)
    assert (once.keys, once.committed()) == ([b"a", b"b"], 2)


# What the settings pass over


def test_a_message_that_the_settings_name_is_passed_over_with_a_letter(make_either: Maker) -> None:
    """It is the way out where a message brings the service down at each start."""
    turned = make_either(skip=(("input", 0, 1),))
    turned.assign(0)
    turned.send(response("a"), response("bad"), response("b"), first=0)
    turned.pass_time(1)
    assert turned.committed() == 3
    records = [one["key"] for one in turned.producer.delivered if one["topic"] == "records"]
    assert records == [b"a", b"b"]
    assert [one["topic"] for one in turned.producer.delivered].count("dead") == 1
    assert turned.totals["message skipped(skipped_by_operator)"] == 1
    [line] = turned.log.of(LogEvent.MESSAGE_SKIPPED)
    assert (line["partition"], line["offset"]) == (0, 1)


# Events of the group


def test_what_is_revoked_is_committed_before_it_goes(turned: Turned) -> None:
    turned.send(response("r"), chunk("open"), first=0)
    turned.revoke()
    assert (turned.keys, turned.committed()) == ([b"r"], 2)
    assert turned.checkpoint().open == ((1, 0),)
    assert turned.consumer.assigned == {}


def test_what_is_lost_is_not_committed_any_more(repeating: Turned) -> None:
    """Somebody else has it, and may be further by now."""
    repeating.turn()
    repeating.producer.stuck = True
    repeating.send(response("r"), first=0)
    repeating.pass_time(1)
    assert repeating.committer.busy
    repeating.lose()
    repeating.producer.stuck = False
    assert repeating.committer.wait_until_delivered(SECONDS)
    repeating.pass_time(10)
    assert repeating.committed() == 0
    assert repeating.log.of(LogEvent.PARTITIONS_LOST)


def test_what_is_lost_while_its_commit_waits_for_another_is_not_committed(
    repeating: Turned,
) -> None:
    repeating.pass_time(1)
    repeating.consumer.answers_commits = False
    for offset in range(2):
        repeating.send(response(f"r{offset}"), first=offset)
        repeating.pass_time(1)
    repeating.lose()
    repeating.consumer.answers_commits = True
    repeating.pass_time(10)
    assert repeating.committed() == 1


def test_a_revoke_does_not_wait_longer_than_the_group_does(
    make_either: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = make_either()
    turned.assign(0)
    turned.turn()
    turned.producer.stuck = True
    turned.send(response("r"), first=0)
    waits: list[float] = []
    monkeypatch.setattr(turned.committer, "wait_until_delivered", waits.append)
    turned.revoke()
    assert waits == [pytest.approx(GRACE_S)]
    assert turned.committed() == 0


def test_a_revoke_waits_for_the_batch_on_its_way_and_delivers_the_rest(once: Turned) -> None:
    """What is not committed is read again by the next owner; it comes at no cost here."""
    once.turn()
    once.producer.stuck = True
    once.send(response("a"), first=0)
    once.pass_time(1)
    assert once.committer.busy
    once.send(response("b"), first=1)
    once.producer.stuck = False
    once.revoke()
    assert (once.keys, once.committed()) == ([b"a", b"b"], 2)
    assert once.consumer.assigned == {}


def test_a_revoke_tries_again_what_was_aborted(once: Turned) -> None:
    once.turn()
    once.aborts(2)
    once.send(response("a"), response("b"), first=0)
    once.revoke()
    assert (once.keys, once.committed()) == ([b"a", b"b"], 2)
    assert once.totals["request published"] == 2


def test_a_revoke_gives_up_at_its_deadline_where_everything_is_aborted(once: Turned) -> None:
    """The group would take this member for dead, and the others wait that long."""
    once.turn()
    once.send(response("r"), first=0)
    once.clock.advance(0.5)
    commit = once.producer.commit_transaction

    def slowly(timeout: float = -1) -> None:
        once.clock.advance(1)
        commit(timeout)

    once.producer.commit_transaction = slowly  # type: ignore[method-assign]
    once.aborts(1_000)
    begun = once.clock.monotonic()
    once.revoke()
    assert GRACE_S <= once.clock.monotonic() - begun < GRACE_S + 2
    assert once.committed() == 0
    assert once.consumer.assigned == {}


def test_aborts_in_quick_succession_do_not_end_the_service_in_a_revoke(once: Turned) -> None:
    """So many in a row would, and a revoke tries again and again."""
    once.turn()
    once.send(response("r"), first=0)
    once.clock.advance(0.5)
    once.aborts(1_000)
    once.revoke()
    assert once.consumer.assigned == {}


def test_a_batch_of_a_revoked_partition_that_is_aborted_later_is_dropped(
    once: Turned, monkeypatch: pytest.MonkeyPatch
) -> None:
    once.turn()
    once.producer.stuck = True
    once.send(response("r"), first=0)
    once.pass_time(1)
    with monkeypatch.context() as patched:
        patched.setattr(once.committer, "wait_until_delivered", lambda _timeout: False)
        once.revoke()
    once.aborts()
    once.producer.stuck = False
    assert once.committer.wait_until_delivered(SECONDS)
    once.pass_time(10)
    assert once.keys == []
    assert once.totals == {}


def test_a_partition_that_stays_goes_on_after_another_was_revoked(make_either: Maker) -> None:
    turned = make_either()
    turned.assign(0, 1)
    turned.turn()
    turned.revoke(0)
    turned.send(response("r"), first=0, partition=1)
    turned.pass_time(1)
    assert (turned.keys, turned.committed(1)) == ([b"r"], 1)


@pytest.mark.parametrize("code", [TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT])
def test_offsets_that_cannot_be_had_for_long_end_with_the_clients(
    turned: Turned, code: int
) -> None:
    """Without them every partition would begin anew; new clients end a transaction left open."""
    turned.consumer.failures["committed"] = [failure(code)] * 10_000
    with pytest.raises(ClientsLostError, match="no answer"):
        turned.assign(1)


def test_offsets_that_are_forbidden_end_the_service(turned: Turned) -> None:
    turned.consumer.failures["committed"] = [failure(KafkaError.GROUP_AUTHORIZATION_FAILED)]
    with pytest.raises(KafkaException):
        turned.assign(1)


def test_a_message_of_a_partition_without_state_is_dropped_and_counted(turned: Turned) -> None:
    turned.turn(FakeMessage(response("r"), 0, partition=5))
    turned.pass_time(1)
    assert turned.keys == []
    assert turned.totals["revoked_messages"] == 1


def test_a_message_that_the_client_reads_twice_counts_once(turned: Turned) -> None:
    turned.send(response("a"), response("b"), first=0)
    turned.send(response("b"), response("c"), first=1)
    turned.pass_time(1)
    assert turned.keys == [b"a", b"b", b"c"]
    assert turned.totals["refetched_messages"] == 1


def test_an_empty_assignment_and_one_while_stopping_ask_the_cluster_nothing(
    make: Maker,
) -> None:
    turned = make()
    turned.consumer.failures["committed"] = [failure(KafkaError.GROUP_AUTHORIZATION_FAILED)]
    turned.call("on_assign")
    turned.stop.request("SIGTERM")
    turned.call("on_assign", at(-1001))
    assert turned.consumer.failures["committed"]


def test_a_stop_while_the_cluster_does_not_answer_ends_the_asking(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = make()

    def committed(*_args: object, **_options: object) -> list[TopicPartition]:
        turned.stop.request("SIGTERM")
        raise failure(TIMED_OUT)

    monkeypatch.setattr(turned.consumer, "committed", committed)
    turned.call("on_assign", at(-1001))
    assert turned.consumer.assigned == {}


def test_a_position_follows_the_end_over_marks_of_transactions(turned: Turned) -> None:
    turned.send(response("r"), first=0)
    turned.turn(end(2))
    turned.pass_time(1)
    assert turned.committed() == 2


@pytest.fixture
def quiet(turned: Turned) -> Turned:
    """Return a service with an open request at offset 0, at the end of its partition."""
    turned.consumer.watermarks[0] = 0, 1
    turned.send(chunk("open"), first=0)
    turned.turn(end(1))
    return turned


def test_requests_closed_in_silence_are_committed(quiet: Turned) -> None:
    quiet.pass_time(10)
    assert quiet.checkpoint().open == ((0, 0),)
    quiet.pass_time(120)
    quiet.pass_time(1)
    assert quiet.checkpoint().open == ()
    assert quiet.totals["request incomplete(partition_silent)"] == 1


def test_a_message_ends_the_silence(quiet: Turned) -> None:
    quiet.pass_time(100)
    quiet.send(chunk("open", 1), first=1)
    quiet.pass_time(300)
    assert quiet.checkpoint().open == ((0, 0),), "the end was not reached since"


# Reading again


def _resumed(make_either: Maker, *values: bytes) -> Turned:
    """Return a service that reads again what another one has committed."""
    turned = make_either()
    turned.assign(0)
    turned.send(*values, first=0)
    turned.pass_time(5)
    heir = make_either()
    heir.consumer.stored[0] = turned.consumer.stored[0]
    heir.consumer.watermarks[0] = 0, len(values)
    heir.assign(0)
    return heir


def test_reading_again_is_counted_apart_and_publishes_nothing(make_either: Maker) -> None:
    values = chunk("open"), response("r")
    heir = _resumed(make_either, *values)
    heir.send(*values, response("new"), first=0)
    heir.pass_time(1)
    assert heir.keys == [b"new"]
    assert heir.totals == {
        "message accepted": 1,
        "possible_repeats": 1,
        "request published": 1,
        "reread_messages": 2,
    }
    assert not heir.log.of(LogEvent.STATE_DIFFERS)


def test_a_committed_state_that_reading_again_does_not_find_is_told_as_a_bug(
    make_either: Maker,
) -> None:
    heir = _resumed(make_either, chunk("open"), response("r"))
    whole_now = native("open", sequence=0, body=whole("open"))
    heir.send(whole_now, response("r"), response("new"), first=0)
    [line] = heir.log.of(LogEvent.STATE_DIFFERS)
    assert line == line | {"level": "error", "partition": 0, "requests": 1}


def test_the_progress_of_a_long_reading_is_told(make_either: Maker) -> None:
    heir = _resumed(make_either, chunk("open"), *(response(f"r{n}") for n in range(9)))
    heir.send(chunk("open"), *(response(f"r{n}") for n in range(4)), first=0)
    heir.pass_time(10)
    [line] = heir.log.of(LogEvent.REREAD_PROGRESS)
    assert (line["offset"], line["position"], line["remaining"]) == (5, 10, 5)


# Offsets that are not in the log


def _out_of_range(offset: int) -> FakeMessage:
    return FakeMessage(None, offset, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))


def test_messages_deleted_before_they_were_read_leave_open_what_is_open(turned: Turned) -> None:
    turned.send(chunk("open"), first=0)
    turned.consumer.watermarks[0] = 50, 80
    turned.turn(_out_of_range(1))
    assert turned.consumer.assigned == {0: 50}
    turned.send(native("open", sequence=1, body=last_chunk()), first=50)
    turned.send(native("open", sequence=2, body="[DONE]"), first=51)
    turned.pass_time(1)
    assert (turned.keys, turned.committed()) == ([b"open"], 52)
    [line] = turned.log.of(LogEvent.KAFKA_ERROR)
    assert line == line | {"level": "error", "partition": 0, "offset": 1, "start_offset": 50}


def test_an_end_that_was_cut_off_is_where_reading_goes_on(turned: Turned) -> None:
    turned.send(*(response(f"r{n}") for n in range(10)), first=0)
    turned.consumer.watermarks[0] = 0, 6
    turned.turn(_out_of_range(10))
    assert turned.consumer.assigned == {0: 6}
    turned.send(response("again"), first=6)
    turned.pass_time(1)
    assert turned.keys[-1] == b"again"
    assert turned.committed() == 7


def test_a_topic_made_anew_is_read_from_its_beginning_and_open_requests_get_their_outcome(
    turned: Turned,
) -> None:
    turned.send(chunk("open"), response("r"), first=0)
    turned.consumer.watermarks[0] = 0, 1
    turned.topics.ids["input"] = "another id"
    turned.turn(_out_of_range(2))
    assert turned.consumer.assigned == {0: 0}
    turned.send(response("new"), first=0)
    turned.pass_time(1)
    assert turned.keys == [b"r", b"new"]
    assert turned.totals["request incomplete(idle_timeout)"] == 1
    found = turned.consumer.stored[0]
    assert found.offset == 1
    assert isinstance(decode(found.metadata or "", 1, topic_hash("another id")), Checkpoint)


def test_a_topic_made_anew_is_noticed_though_its_offsets_go_on(turned: Turned) -> None:
    """Else what it holds up to the old position would never be read."""
    turned.send(chunk("open"), response("r"), first=0)
    turned.topics.ids["input"] = "another id"
    turned.consumer.watermarks[0] = 0, 50
    turned.pass_time(10)
    assert turned.consumer.assigned == {0: 0}
    [line] = turned.log.of(LogEvent.TOPIC_RECREATED)
    assert line == line | {"level": "error", "partition": 0, "offset": 2, "start_offset": 0}
    turned.send(response("new"), first=0)
    turned.pass_time(1)
    assert turned.keys == [b"r", b"new"]
    assert turned.totals["request incomplete(idle_timeout)"] == 1


def test_what_was_aborted_of_the_old_topic_goes_out_with_the_new_one(once: Turned) -> None:
    """The messages that it came from are gone: nobody could read them again."""
    once.turn()
    once.aborts()
    once.send(response("old"), first=0)
    once.clock.advance(1)
    once.turn()
    once.consumer.watermarks[0] = 0, 0
    once.topics.ids["input"] = "another id"
    once.turn(_out_of_range(1))
    once.pass_time(1)
    assert (once.keys, once.committed()) == ([b"old"], 0)


@pytest.mark.parametrize(
    ("code", "event"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, LogEvent.TOPIC_UNAVAILABLE),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, LogEvent.TOPIC_UNAVAILABLE),
        (KafkaError._MAX_POLL_EXCEEDED, LogEvent.KAFKA_ERROR),
    ],
)
def test_an_error_of_the_client_is_said_and_reading_goes_on(
    turned: Turned, code: int, event: LogEvent
) -> None:
    turned.turn(FakeMessage(error=KafkaError(code)), FakeMessage(response("r"), 0))
    turned.pass_time(1)
    assert len(turned.log.of(event)) == 1
    assert turned.keys == [b"r"]


def test_a_turn_ends_in_time_and_reads_the_rest_again(
    turned: Turned, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = turned.service._feed.feed

    def slowly(messages: Any) -> None:
        turned.clock.advance(len(messages))
        feed(messages)

    monkeypatch.setattr(turned.service._feed, "feed", slowly)
    turned.turn(*(FakeMessage(response(f"r-{at}"), at) for at in range(100)))
    # One by poll, then as many as lie between two looks at the clock; the next is read again.
    assert turned.consumer.assigned[0] == 65
    turned.pass_time(1)
    assert turned.totals["message accepted"] == 65


# As the client says it: the error itself does not call itself fatal, and has a code of its own.
REPLACED = KafkaError(
    KafkaError._FATAL,
    "Fatal error: Broker: Static consumer fenced by other consumer with same group.instance.id",
)
STATIC = {"group.instance.id": "mine"}


def test_a_consumer_whose_instance_id_another_one_has_ends_the_service(make_either: Maker) -> None:
    """With new clients the two would fence each other for ever."""
    turned = make_either(kafka_consumer=STATIC)
    turned.assign(0)
    with pytest.raises(FencedError, match=r"group\.instance\.id"):
        turned.turn(FakeMessage(error=REPLACED))


@pytest.mark.parametrize(
    "error", [KafkaError(KafkaError._FATAL, "at its end"), KafkaError(1, "at its end", True)]
)
def test_a_consumer_at_its_end_is_to_be_replaced(turned: Turned, error: KafkaError) -> None:
    """It reads nothing any more, and says so only once."""
    with pytest.raises(ClientsLostError, match="consumer: at its end"):
        turned.turn(FakeMessage(error=error))


def test_without_the_right_to_its_group_the_service_ends_instead_of_idling(turned: Turned) -> None:
    refused = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaFailureError, match="Group authorization failed"):
        turned.turn(FakeMessage(error=refused))


def test_an_error_of_our_own_names_the_message_that_it_comes_with(
    turned: Turned, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_message: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(turned.service._assignment.partitions["input", 0].core, "feed", broken)
    with pytest.raises(ZeroDivisionError) as raised:
        turned.send(response("r"), first=7)
    assert raised.value.__notes__ == [
        "at input:0:7; to pass over this message, add 'input:0:7' to skip"
    ]


# The end


def _running(turned: Turned, *incoming: FakeMessage) -> Turned:
    """Let the service run by itself until it has read what is given to it."""
    turned.consumer.assign_at_poll = [at(-1001)]
    turned.consumer.incoming = list(incoming)
    poll = turned.consumer.poll

    def poll_or_stop(_timeout: float) -> FakeMessage | None:
        message = poll(_timeout)
        if message is None:
            turned.stop.request("SIGTERM")
        return message

    turned.consumer.poll = poll_or_stop  # type: ignore[method-assign]
    return turned


def test_a_stop_delivers_commits_and_leaves_the_group(make_either: Maker) -> None:
    turned = _running(make_either(), FakeMessage(response("r"), 0), FakeMessage(chunk("open"), 1))
    turned.service.run()
    assert (turned.keys, turned.committed()) == ([b"r"], 2)
    assert turned.consumer.closed
    assert turned.log.of(LogEvent.SHUTDOWN_REQUESTED)[0]["reason"] == "SIGTERM"
    assert turned.totals == {"message accepted": 2, "request published": 1}


def test_a_stop_tries_once_more_what_the_group_did_not_take(make: Maker) -> None:
    turned = _running(make(delivery="at_least_once"), FakeMessage(response("r"), 0))
    turned.consumer.failures["commit"] = [failure(KafkaError.REBALANCE_IN_PROGRESS)]
    turned.service.run()
    assert turned.committed() == 1


@pytest.mark.parametrize("stuck", ["records", "commit"])
def test_a_stop_without_a_broker_ends_in_time_and_does_not_wait_for_the_client(
    make: Maker, monkeypatch: pytest.MonkeyPatch, stuck: str
) -> None:
    """The client's close waits three quarters of a minute for a commit on its way."""
    turned = _running(make(delivery="at_least_once"), FakeMessage(response("r"), 0))
    turned.producer.stuck = stuck == "records"
    turned.consumer.answers_commits = stuck != "commit"
    begun = turned.clock.monotonic()
    wait, poll = turned.committer.wait_until_delivered, turned.consumer.poll

    def short_wait(timeout: float) -> bool:
        done = wait(0.01) if turned.producer.stuck else wait(SECONDS)
        turned.clock.advance(0 if done else timeout)
        return done

    def long_poll(timeout: float) -> FakeMessage | None:
        turned.clock.advance(timeout)
        return poll(timeout)

    monkeypatch.setattr(turned.committer, "wait_until_delivered", short_wait)
    monkeypatch.setattr(turned.consumer, "poll", long_poll)
    turned.service.run()
    assert turned.clock.monotonic() - begun == pytest.approx(10, abs=1)
    assert not turned.consumer.closed
    [line] = turned.log.of(LogEvent.COMMIT_FAILED)
    assert line["error"] == "the commit had no answer when the service stopped"


def test_a_stop_with_a_transaction_that_does_not_end_leaves_the_group_in_time(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waits for the transaction: brokers end it, and the next start does."""
    turned = _running(make(), FakeMessage(response("r"), 0))
    begun = turned.clock.monotonic()
    wait, started = turned.committer.wait_until_delivered, turned.committer.wait_until_started

    def then_stuck(_timeout: float) -> bool:
        turned.producer.stuck = started(SECONDS)
        return turned.producer.stuck

    monkeypatch.setattr(turned.committer, "wait_until_started", then_stuck)

    def short_wait(timeout: float) -> bool:
        done = wait(0.01)
        turned.clock.advance(0 if done else max(timeout, 0))
        return done

    monkeypatch.setattr(turned.committer, "wait_until_delivered", short_wait)
    turned.service.run()
    assert turned.clock.monotonic() - begun == pytest.approx(10, abs=1)
    assert turned.consumer.closed
    assert turned.committed() is None


def test_a_stop_tries_again_what_was_aborted(make: Maker) -> None:
    turned = _running(make(), FakeMessage(response("r"), 0))
    turned.producer.failures["send_offsets_to_transaction"] = [ABORTED] * 2
    turned.service.run()
    assert (turned.keys, turned.committed()) == ([b"r"], 1)
    assert turned.consumer.closed


def test_a_service_says_whether_it_has_delivered_anything(make_either: Maker) -> None:
    """By this a service that gets nowhere is told from one that does."""
    turned = make_either()
    assert not turned.service.has_delivered
    turned.assign(0)
    turned.turn()
    assert turned.service.has_delivered


def test_outcomes_are_counted_once_though_the_clients_were_replaced(make: Maker) -> None:
    first = make()
    first.assign(0)
    first.send(response("a"), first=0)
    first.pass_time(1)
    first.send(response("b"), first=1)  # Lost with its clients before it was delivered.

    second = make(metrics=first.metrics)
    second.consumer.stored[0] = first.consumer.stored[0]
    second.consumer.watermarks[0] = 0, 2
    second.assign(0)
    second.send(response("b"), first=1)
    second.pass_time(1)
    assert first.totals["request published"] == 2
    assert first.totals["message accepted"] == 2


def test_a_failure_leaves_the_group_without_a_commit(make_either: Maker) -> None:
    """So that the others need not wait for the end of its session."""
    turned = _running(make_either(), FakeMessage(response("r"), 0))
    refusal = KafkaError.TOPIC_AUTHORIZATION_FAILED
    turned.producer.rejects = lambda _message, _batch: refusal
    with pytest.raises(DeliveryError):
        turned.service.run()
    assert turned.consumer.closed
    assert turned.consumer.assigned == {}
    assert turned.committed() in (None, 0)


def test_a_failure_on_the_way_out_does_not_hide_the_first(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = make()
    first = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "the first")
    turned.consumer.incoming = [FakeMessage(error=first)]

    def close() -> None:
        raise failure(WAIT_COORD)

    monkeypatch.setattr(turned.consumer, "close", close)
    with pytest.raises(KafkaFailureError, match="the first"):
        turned.service.run()


@pytest.mark.parametrize(("answered_after_s", "closed_after_s"), [(3, 3), (1_000, 45)])
def test_lost_clients_leave_the_group_once_their_join_is_answered(
    make: Maker, monkeypatch: pytest.MonkeyPatch, answered_after_s: int, closed_after_s: int
) -> None:
    """A broker would not hear of it before, and the group waits a session for who has not left."""
    turned = make()
    turned.consumer.generation = -1
    begun = turned.clock.monotonic()
    closed_at: list[float] = []

    def poll(timeout: float) -> None:
        turned.clock.advance(timeout)
        if turned.clock.monotonic() - begun >= answered_after_s:
            turned.consumer.generation = 1
        if turned.clock.monotonic() - begun == pytest.approx(timeout):
            raise ClientsLostError("as the test says")

    monkeypatch.setattr(turned.consumer, "poll", poll)
    monkeypatch.setattr(
        turned.consumer, "close", lambda: closed_at.append(turned.clock.monotonic() - begun)
    )
    with pytest.raises(ClientsLostError):
        turned.service.run()
    assert closed_at == [pytest.approx(closed_after_s, abs=0.3)]


def test_a_batch_whose_call_never_comes_back_does_not_stall_the_service_for_ever(
    once: Turned,
) -> None:
    """librdkafka may wait without end, whatever timeout it was given."""
    once.turn()
    once.producer.stuck = True
    once.send(response("r"), first=0)
    once.pass_time(1)
    assert once.committer.busy
    once.clock.advance(14)
    once.turn()
    once.clock.advance(2)
    with pytest.raises(UnansweredError, match="delivery of a batch: timed out after 15 s"):
        once.turn()


def test_a_batch_waits_for_its_broker_as_long_as_no_broker_answers(once: Turned) -> None:
    """New clients could do nothing either, and would lose what these may still do."""
    once.turn()
    once.producer.stuck, once.brokers_answer = True, False
    once.send(response("r"), first=0)
    for _ in range(100):
        once.pass_time(10)
    once.producer.stuck, once.brokers_answer = False, True
    once.pass_time(1)
    assert once.keys == [b"r"]


def test_partitions_are_not_asked_for_before_the_producer_is_ready(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their committed offsets are not stable before that."""
    turned = _running(make(), FakeMessage(response("r"), 0))
    turned.producer.stuck = True
    started = turned.committer.wait_until_started

    def at_last(_timeout: float) -> bool:
        assert not started(0.05)
        assert not turned.consumer.callbacks
        turned.producer.stuck = False
        return started(SECONDS)

    monkeypatch.setattr(turned.committer, "wait_until_started", at_last)
    turned.service.run()
    assert turned.keys == [b"r"]


def test_a_producer_that_does_not_become_ready_though_brokers_answer_is_replaced(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = make()
    begun = turned.clock.monotonic()
    monkeypatch.setattr(
        turned.committer, "wait_until_started", lambda _timeout: turned.clock.advance(1)
    )
    with pytest.raises(UnansweredError, match="start of the producer"):
        turned.service.run()
    assert 15 <= turned.clock.monotonic() - begun < 20
    assert not turned.service.has_joined


def test_without_transactions_a_batch_may_wait_for_its_broker_as_long_as_it_takes(
    repeating: Turned,
) -> None:
    repeating.turn()
    repeating.producer.stuck = True
    repeating.send(response("r"), first=0)
    repeating.pass_time(1)
    repeating.pass_time(3_600)
    assert repeating.committer.busy


def test_who_waits_long_for_partitions_says_so_now_and_then(make_either: Maker) -> None:
    """After a kill the group waits for the one who is gone, and nothing else would be said."""
    turned = make_either()
    turned.turn()
    assert not turned.log.of(LogEvent.WAITING_FOR_PARTITIONS)
    for _ in range(14):
        turned.pass_time(11)
    assert len(turned.log.of(LogEvent.WAITING_FOR_PARTITIONS)) == 3


def test_who_has_lost_its_partitions_says_that_it_waits_for_some(turned: Turned) -> None:
    turned.lose()
    turned.pass_time(11)
    assert turned.log.of(LogEvent.WAITING_FOR_PARTITIONS)


def test_who_has_partitions_waits_for_none(turned: Turned) -> None:
    turned.pass_time(11)
    assert not turned.log.of(LogEvent.WAITING_FOR_PARTITIONS)


def test_a_topic_made_anew_is_said_also_where_its_offsets_ended_before(turned: Turned) -> None:
    turned.send(response("r"), first=0)
    turned.consumer.watermarks[0] = 0, 0
    turned.topics.ids["input"] = "another id"
    turned.turn(_out_of_range(1))
    [line] = turned.log.of(LogEvent.TOPIC_RECREATED)
    assert line == line | {"level": "error", "partition": 0, "offset": 1, "start_offset": 0}


def test_a_partition_that_the_new_topic_has_not_holds_up_nothing(once: Turned) -> None:
    once.assign(1)
    once.send(chunk("open"), first=0)
    once.topics.ids["input"] = "another id"
    gone = [failure(KafkaError._UNKNOWN_PARTITION)] * 10_000
    once.consumer.failures["watermarks"] = gone
    begun = once.clock.monotonic()
    once.turn(_out_of_range(1))
    assert once.clock.monotonic() - begun < 15
    [line] = once.log.of(LogEvent.TOPIC_RECREATED)
    assert line == line | {
        "partition": 0,
        "error": "the recreated topic does not have this partition",
    }
    once.consumer.failures.clear()
    once.send(response("r"), first=0, partition=1)
    once.pass_time(1)
    assert once.keys == [b"r"]


def test_an_aborted_part_of_a_partition_that_the_new_topic_has_not_is_dropped(
    once: Turned,
) -> None:
    once.assign(1)
    once.aborts()
    once.send(response("gone"), first=0)
    once.send(response("kept"), first=0, partition=1)
    once.clock.advance(1)
    once.turn()
    once.topics.ids["input"] = "another id"
    once.consumer.failures["watermarks"] = [failure(KafkaError._UNKNOWN_PARTITION)] * 10_000
    once.turn(_out_of_range(1))
    once.consumer.failures.clear()
    once.pass_time(1)
    assert once.keys == [b"kept"]


def test_a_stop_while_a_partition_is_looked_for_is_a_stop_in_good_order(once: Turned) -> None:
    """The exit code would say that Kafka had failed."""
    once.send(response("r"), first=0)
    once.stop.request("SIGTERM")
    once.consumer.failures["watermarks"] = [failure(TIMED_OUT)] * 10_000
    with pytest.raises(Stopped):
        once.service._feed.feed([_out_of_range(1)])


def test_where_partitions_without_a_commit_begin_is_said(make_either: Maker) -> None:
    turned = make_either()
    turned.consumer.watermarks[0] = 5, 9
    turned.assign(0)
    [line] = turned.log.of(LogEvent.PARTITIONS_ASSIGNED)
    assert line["start_offsets"] == {"input:0": 5}


# Metrics


def _metric(turned: Turned, name: str, **labels: str) -> float | None:
    return turned.metrics.registry.get_sample_value(f"acceptance_{name}", labels)


_VLLM = {"engine": "vllm", "model": "demo-8b"}


def test_metrics_of_an_aborted_batch_count_once(once: Turned) -> None:
    once.aborts(3)
    once.send(response("a"), b"{broken", first=0)
    once.pass_time(1)
    assert _metric(once, "transactions_total", result="aborted") == 1
    assert _metric(once, "draft_tokens_total", **_VLLM) is None
    for _ in range(4):
        once.pass_time(2)
    once.send(response("b"), first=2)
    once.pass_time(1)
    assert _metric(once, "transactions_total", result="aborted") == 3
    assert _metric(once, "requests_total", **_VLLM, outcome="published", reason="") == 2
    assert _metric(once, "draft_tokens_total", **_VLLM) == 48
    assert _metric(once, "step_accepted_draft_tokens_count", **_VLLM) == 16
    assert _metric(once, "dead_letters_total", kind="message", reason="invalid_json") == 1
    assert _metric(once, "publish_delay_seconds_count") == 2


def test_metrics_of_a_partition_that_was_lost_with_its_batch_do_not_count(make: Maker) -> None:
    once = make()
    once.assign(0, 1)
    once.turn()
    once.aborts()
    once.turn(FakeMessage(response("lost"), 0, 0), FakeMessage(response("kept"), 0, 1))
    once.clock.advance(1)
    once.turn()
    once.lose(0)
    once.pass_time(1)
    once.pass_time(1)
    assert once.keys == [b"kept"]
    assert _metric(once, "draft_tokens_total", **_VLLM) == 24


def test_messages_are_counted_by_their_envelope(turned: Turned) -> None:
    bare = msgspec.json.encode(whole("bare"))
    turned.send(chunk("open"), chunk("open", 1), bare, b"{broken", first=0)
    turned.pass_time(1)
    for envelope, outcome, reason, expected in (
        ("native", "accepted", "", 2),
        ("body", "accepted", "", 1),
        ("unknown", "bad_payload", "invalid_json", 1),
    ):
        labels = {"envelope": envelope, "outcome": outcome, "reason": reason}
        assert _metric(turned, "messages_total", **labels) == expected


def test_a_commit_is_timed_from_its_hand_over_to_the_answer(once: Turned) -> None:
    once.producer.stuck = True
    once.send(response("r"), first=0)
    once.pass_time(1)
    once.clock.advance(7)
    once.producer.stuck = False
    assert once.committer.wait_until_delivered(SECONDS)
    once.turn()
    assert _metric(once, "commit_duration_seconds_bucket", le="5.0") == 1  # Of the first position.
    assert _metric(once, "commit_duration_seconds_bucket", le="10.0") == 2


def test_the_gauges_show_what_is_assigned(turned: Turned) -> None:
    turned.send(chunk("open"), first=0)
    turned.consumer.watermarks[0] = 0, 9
    turned.pass_time(5)
    assert _metric(turned, "assigned_partitions") == 1
    assert _metric(turned, "open_requests") == 1
    assert _metric(turned, "consumer_lag_messages", topic="input", partition="0") == 8


def test_a_partition_that_is_taken_away_has_no_lag_any_more(turned: Turned) -> None:
    turned.assign(1)
    turned.pass_time(5)
    labels = {"topic": "input", "partition": "1"}
    assert _metric(turned, "consumer_lag_messages", **labels) == 0
    turned.revoke(1)
    turned.pass_time(1)
    assert _metric(turned, "consumer_lag_messages", **labels) is None
    assert _metric(turned, "assigned_partitions") == 1


def test_what_is_still_to_be_read_again_is_shown_and_no_lag(make_either: Maker) -> None:
    values = chunk("open"), response("r")
    heir = _resumed(make_either, *values)
    heir.send(values[0], first=0)
    heir.pass_time(5)
    assert _metric(heir, "rereading_partitions") == 1
    assert _metric(heir, "reread_left_messages") == 1
    assert _metric(heir, "reread_messages_total") == 1
    assert _metric(heir, "consumer_lag_messages", topic="input", partition="0") == 0
    heir.send(values[1], response("new"), first=1)
    heir.pass_time(5)
    assert _metric(heir, "rereading_partitions") == 0
    assert _metric(heir, "reread_left_messages") == 0
    assert _metric(heir, "reread_messages_total") == 2


def test_what_the_group_does_is_counted(turned: Turned) -> None:
    turned.assign(1, 2)
    turned.revoke(1)
    turned.lose(2)
    assert _metric(turned, "rebalances_total", event="assigned") == 2
    assert _metric(turned, "rebalances_total", event="revoked") == 1
    assert _metric(turned, "rebalances_total", event="lost") == 1
