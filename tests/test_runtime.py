"""The Kafka loop, turned by hand: what a real broker cannot be made to do when a test wants it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from consumer.checkpoint import Checkpoint, decode
from consumer.committer import Committer, DeliveryError
from consumer.logs import Event
from consumer.offsets import Offsets
from consumer.reporting import Reporter
from consumer.runtime import KafkaFailureError, Service
from consumer.settings import Settings
from tests.core.made import chunk as body_chunk
from tests.core.made import last_chunk, native, pipeline, whole
from tests.kafka_fakes import (
    TIMED_OUT,
    WAIT_COORD,
    FakeConsumer,
    FakeMessage,
    FakeProducer,
    Log,
    at,
    end,
    failure,
)
from tests.manual_clock import ManualClock

SECONDS = 10
HASH = 42
SETTINGS = Settings(
    topics=("input",), commit_interval=1.0, idle_timeout=120.0, shutdown_timeout=10.0
)


def chunk(request_id: str, sequence: int = 0) -> bytes:
    return native(request_id, sequence=sequence, body=body_chunk())


def response(request_id: str) -> bytes:
    return native(request_id, body=whole(request_id))


class Turned:
    """A service whose clock, broker and loop are in the hand of the test."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.clock, self.log = ManualClock(), Log()
        self.consumer, self.producer = FakeConsumer(), FakeProducer()
        self.committer = Committer(
            cast("Producer", self.producer), {"record": "records", "dead_letter": "dead"}, self.log
        )
        self.offsets = Offsets(self.log)
        self.consumer.on_commit = self.offsets.on_commit
        reporter = Reporter(
            dead_letters="full",
            record_limit=1_000_000,
            letter_limit=1_000_000,
            preview=0,
            clock=self.clock,
            log=self.log,
        )
        self.service = Service(
            settings,
            pipeline(),
            cast("Consumer", self.consumer),
            self.committer,
            self.offsets,
            reporter,
            self.hashes,
            self.clock,
            self.log,
        )
        self.subscribed = False

    def hashes(self, topics: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(topics, HASH)

    def assign(self, *partitions: int) -> None:
        """Give partitions to the service, as the group would."""
        self.consumer.assign_at_poll = [at(-1001, partition) for partition in partitions]
        self.turn()

    def turn(self, *incoming: FakeMessage) -> None:
        """Turn the loop once, and wait for what it has set going."""
        if not self.subscribed:
            self.consumer.subscribe(
                ["input"],
                on_assign=self.service._on_assign,
                on_revoke=self.service._on_revoke,
                on_lost=self.service._on_lost,
            )
            self.subscribed = True
        self.consumer.incoming += incoming
        self.service._turn()
        if not self.producer.stuck:
            assert self.committer.wait(SECONDS)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and the loop turn often enough that commits are made and answered."""
        self.clock.advance(seconds)
        for _ in range(3):
            self.turn()

    def send(self, *values: bytes, first: int, partition: int = 0) -> None:
        self.turn(
            *(FakeMessage(value, offset, partition) for offset, value in enumerate(values, first))
        )

    def committed(self, partition: int = 0) -> int | None:
        found = self.consumer.stored.get(partition)
        return None if found is None else found.offset

    def checkpoint(self, partition: int = 0) -> Checkpoint:
        found = self.consumer.stored[partition]
        checkpoint = decode(found.metadata or "", found.offset, HASH)
        assert isinstance(checkpoint, Checkpoint)
        return checkpoint

    @property
    def keys(self) -> list[bytes]:
        return [message["key"] for message in self.producer.delivered]


@pytest.fixture
def make() -> Iterator[Callable[..., Turned]]:
    made: list[Turned] = []

    def maker(settings: Settings = SETTINGS) -> Turned:
        made.append(Turned(settings))
        return made[-1]

    yield maker
    for turned in made:
        turned.committer.stop()


@pytest.fixture
def turned(make: Callable[..., Turned]) -> Turned:
    """Return a service with one partition, read up to offset 0."""
    turned = make()
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
    assert turned.committer.wait(SECONDS)
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
    before = len(turned.consumer.commits)
    for _ in range(50):
        turned.pass_time(10)
    assert len(turned.consumer.commits) == before


def test_a_position_without_an_outcome_is_committed_after_a_while_and_once(
    turned: Turned,
) -> None:
    turned.turn()
    before = len(turned.consumer.commits)
    turned.send(chunk("open"), first=0)
    turned.pass_time(1)
    assert len(turned.consumer.commits) == before
    for _ in range(10):
        turned.pass_time(5)
    assert len(turned.consumer.commits) == before + 1
    assert turned.committed() == 1


def test_only_partitions_with_an_outcome_take_part_in_a_commit(make: Callable[..., Turned]) -> None:
    turned = make()
    turned.assign(0, 1)
    turned.turn()
    turned.turn(FakeMessage(response("r"), 0, 0), FakeMessage(chunk("open"), 0, 1))
    turned.pass_time(1)
    assert [one.partition for one in turned.consumer.commits[-1]] == [0]


def test_a_partition_that_is_read_again_is_not_committed_by_revoke_and_shutdown_either(
    make: Callable[..., Turned],
) -> None:
    turned = make()
    turned.assign(0)
    turned.send(chunk("open"), *(response(f"r{n}") for n in range(9)), first=0)
    turned.pass_time(1)
    before = turned.consumer.stored[0]

    heir = make()
    heir.consumer.stored[0] = before
    heir.consumer.watermarks[0] = 0, 10
    heir.assign(0)
    assert heir.consumer.assigned == {0: 0}
    heir.send(*(chunk("open") if not n else response(f"r{n - 1}") for n in range(9)), first=0)
    heir.pass_time(60)
    heir.service._on_revoke(cast("Consumer", heir.consumer), [at(-1001)])
    assert heir.consumer.commits == []
    assert heir.keys == []


def test_the_group_hears_of_outcomes_again_when_it_did_not_take_them(turned: Turned) -> None:
    turned.turn()
    turned.send(response("r"), first=0)
    turned.consumer.failures["commit"] = [failure(KafkaError.REBALANCE_IN_PROGRESS)]
    turned.pass_time(1)
    assert turned.committed() == 0
    turned.pass_time(1)
    assert turned.committed() == 1
    assert turned.keys == [b"r"], "delivered once"


def test_commits_do_not_pile_up_while_none_is_answered(turned: Turned) -> None:
    turned.pass_time(0)
    before = len(turned.consumer.commits)
    turned.consumer.answers_commits = False
    for offset in range(20):
        turned.send(response(f"r{offset}"), first=offset)
        turned.pass_time(1)
    assert len(turned.consumer.commits) == before + 1
    turned.consumer.answers_commits = True
    turned.pass_time(1)
    assert turned.committed() == 20


def test_a_commit_that_the_group_forbids_ends_the_loop(turned: Turned) -> None:
    turned.send(response("r"), first=0)
    turned.consumer.failures["commit"] = [failure(KafkaError.GROUP_AUTHORIZATION_FAILED)]
    with pytest.raises(KafkaException):
        turned.pass_time(1)


def test_a_full_batch_does_not_wait_for_its_interval(make: Callable[..., Turned]) -> None:
    turned = make(Settings(topics=("input",), commit_interval=60.0, commit_events=3))
    turned.assign(0)
    turned.send(*(response(f"r{n}") for n in range(3)), first=0)
    assert len(turned.keys) == 3


def test_large_outputs_make_a_full_batch_too(
    make: Callable[..., Turned], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters of half a megabyte would fill the memory long before their number counts."""
    monkeypatch.setattr("consumer.runtime._MOST_OUTPUT_BYTES", 100_000)
    turned = make(Settings(topics=("input",), commit_interval=60.0))
    turned.assign(0)
    turned.send(b"{broken" * 5_000, first=0)
    assert turned.producer.delivered == []
    turned.send(b"{broken" * 5_000, b"{broken" * 5_000, first=1)
    assert len(turned.producer.delivered) == 3


def test_while_records_find_no_broker_reading_pauses_and_the_group_is_still_polled(
    make: Callable[..., Turned], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer.runtime._POLL_S", 0.01)
    turned = make(Settings(topics=("input",), commit_interval=60.0, commit_events=1))
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
    turned.service._take(cast("Any", FakeMessage(response("b"), 1)))
    turned.service._collect()
    turned.service._wait_for_committer()
    assert turned.consumer.paused == [True, False]
    assert polled >= 3
    turned.pass_time(1)
    assert turned.keys == [b"a", b"b", b"late"]


# Events of the group


def test_what_is_revoked_is_committed_before_it_goes(turned: Turned) -> None:
    turned.send(response("r"), chunk("open"), first=0)
    turned.service._on_revoke(cast("Consumer", turned.consumer), [at(-1001)])
    assert (turned.keys, turned.committed()) == ([b"r"], 2)
    assert turned.checkpoint().open == ((1, 0),)
    assert turned.consumer.assigned == {}


def test_what_is_lost_is_not_committed_any_more(turned: Turned) -> None:
    """Somebody else has it, and may be further by now."""
    turned.turn()
    turned.producer.stuck = True
    turned.send(response("r"), first=0)
    turned.pass_time(1)
    assert turned.committer.busy
    turned.service._on_lost(cast("Consumer", turned.consumer), [at(-1001)])
    turned.producer.stuck = False
    assert turned.committer.wait(SECONDS)
    turned.pass_time(10)
    assert turned.committed() == 0
    assert turned.log.of(Event.PARTITIONS_LOST)


def test_what_is_lost_while_its_commit_waits_for_another_is_not_committed(turned: Turned) -> None:
    turned.pass_time(1)
    turned.consumer.answers_commits = False
    for offset in range(2):
        turned.send(response(f"r{offset}"), first=offset)
        turned.pass_time(1)
    turned.service._on_lost(cast("Consumer", turned.consumer), [at(-1001)])
    turned.consumer.answers_commits = True
    turned.pass_time(10)
    assert turned.committed() == 1


def test_a_revoke_does_not_wait_longer_than_half_a_shutdown(
    make: Callable[..., Turned], monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = make(Settings(topics=("input",), shutdown_timeout=1.0))
    turned.assign(0)
    turned.turn()
    turned.producer.stuck = True
    turned.send(response("r"), first=0)
    waits: list[float] = []
    monkeypatch.setattr(turned.committer, "wait", waits.append)
    turned.service._on_revoke(cast("Consumer", turned.consumer), [at(-1001)])
    assert waits == [pytest.approx(0.5)]
    assert turned.committed() == 0


def test_a_message_of_a_partition_without_state_is_dropped_and_counted(turned: Turned) -> None:
    turned.turn(FakeMessage(response("r"), 0, partition=5))
    turned.pass_time(1)
    assert turned.keys == []
    assert turned.service.totals()["message of a partition that was taken away"] == 1


def test_a_message_that_the_client_reads_twice_counts_once(turned: Turned) -> None:
    turned.send(response("a"), response("b"), first=0)
    turned.send(response("b"), response("c"), first=1)
    turned.pass_time(1)
    assert turned.keys == [b"a", b"b", b"c"]
    assert turned.service.totals()["message that the client read twice"] == 1


def test_an_empty_assignment_and_one_while_stopping_ask_the_cluster_nothing(
    make: Callable[..., Turned],
) -> None:
    turned = make()
    consumer = cast("Consumer", turned.consumer)
    turned.consumer.failures["committed"] = [failure(KafkaError.GROUP_AUTHORIZATION_FAILED)]
    turned.service._on_assign(consumer, [])
    turned.service.stop("SIGTERM")
    turned.service._on_assign(consumer, [at(-1001)])
    assert turned.consumer.failures["committed"]


def test_a_stop_while_the_cluster_does_not_answer_ends_the_asking(
    make: Callable[..., Turned], monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = make()

    def committed(*_args: object, **_options: object) -> list[TopicPartition]:
        turned.service.stop("SIGTERM")
        raise failure(TIMED_OUT)

    monkeypatch.setattr(turned.consumer, "committed", committed)
    turned.service._on_assign(cast("Consumer", turned.consumer), [at(-1001)])
    assert turned.consumer.assigned == {}


# Silence


@pytest.fixture
def quiet(turned: Turned) -> Turned:
    """Return a service with an open request at offset 0, at the end of its partition."""
    turned.consumer.watermarks[0] = 0, 1
    turned.send(chunk("open"), first=0)
    turned.turn(end(1))
    return turned


def _closed(turned: Turned) -> int:
    return turned.service.totals().get("request incomplete(partition_silent)", 0)


def test_silence_closes_only_after_its_time_since_the_end_was_reached(quiet: Turned) -> None:
    quiet.pass_time(119)
    assert _closed(quiet) == 0
    quiet.pass_time(1)
    assert _closed(quiet) == 1
    [line] = quiet.log.of(Event.SILENT_PARTITION_CLOSED)
    assert (line["partition"], line["requests"]) == (0, 1)


def test_the_closing_is_committed(quiet: Turned) -> None:
    quiet.pass_time(10)
    assert quiet.checkpoint().open == ((0, 0),)
    quiet.pass_time(120)
    quiet.pass_time(1)
    assert quiet.checkpoint().open == ()


def test_a_message_ends_the_silence(quiet: Turned) -> None:
    quiet.pass_time(100)
    quiet.send(chunk("open", 1), first=1)
    quiet.pass_time(300)
    assert _closed(quiet) == 0, "the end was not reached since"


@pytest.mark.parametrize("failing", ["watermarks", "cached"])
def test_without_a_broker_nobody_knows_whether_it_is_silent(quiet: Turned, failing: str) -> None:
    quiet.consumer.failures[failing] = [failure(TIMED_OUT)]
    quiet.pass_time(121)
    assert _closed(quiet) == 0
    quiet.pass_time(119)
    assert _closed(quiet) == 0, "its time begins anew"
    quiet.pass_time(1)
    assert _closed(quiet) == 1


@pytest.mark.parametrize("more", ["visible", "written"])
def test_where_more_was_written_than_read_it_is_not_silent(
    quiet: Turned, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """It may be on its way, or held back by a transaction, which only the last fetch has seen."""
    ends = {"visible": 1, "written": 1, more: 2}
    questions = []

    def watermarks(
        _partition: object, *, cached: bool = False, **_options: object
    ) -> tuple[int, int]:
        questions.append(cached)
        return 0, ends["written" if cached else "visible"]

    monkeypatch.setattr(quiet.consumer, "get_watermark_offsets", watermarks)
    for _ in range(18):
        quiet.pass_time(12.5)
    assert _closed(quiet) == 0
    assert len(questions) == 2, "once each, though it was looked at many times"
    ends[more] = 1
    quiet.pass_time(121)
    assert _closed(quiet) == 1


def test_of_many_silent_partitions_only_one_question_waits_for_an_absent_broker(
    make: Callable[..., Turned], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits a second; the loop has to turn, or the group takes this member for dead."""
    turned = make()
    turned.assign(*range(50))
    turned.turn(*(FakeMessage(chunk("open"), 0, partition) for partition in range(50)))
    turned.turn(*(end(1, partition) for partition in range(50)))
    questions = 0

    def watermarks(*_args: object, **_options: object) -> tuple[int, int]:
        nonlocal questions
        questions += 1
        raise failure(TIMED_OUT)

    monkeypatch.setattr(turned.consumer, "get_watermark_offsets", watermarks)
    turned.clock.advance(121)
    turned.turn()
    assert questions == 1


def test_a_position_follows_the_end_over_marks_of_transactions(turned: Turned) -> None:
    turned.send(response("r"), first=0)
    turned.turn(end(2))
    turned.pass_time(1)
    assert turned.committed() == 2


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
    [line] = turned.log.of(Event.KAFKA_ERROR)
    assert line == line | {"level": "error", "partition": 0, "offset": 1, "starts_at": 50}


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
    turned: Turned, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned.send(chunk("open"), response("r"), first=0)
    turned.consumer.watermarks[0] = 0, 1
    monkeypatch.setattr(turned.service._finder, "_topic_hashes", lambda _topics: {"input": 43})
    turned.turn(_out_of_range(2))
    assert turned.consumer.assigned == {0: 0}
    turned.send(response("new"), first=0)
    turned.pass_time(1)
    assert turned.keys == [b"r", b"new"]
    assert turned.service.totals()["request incomplete(idle_timeout)"] == 1
    found = turned.consumer.stored[0]
    assert found.offset == 1
    assert isinstance(decode(found.metadata or "", 1, 43), Checkpoint)


@pytest.mark.parametrize(
    ("code", "event"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Event.TOPIC_MISSING),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Event.TOPIC_MISSING),
        (KafkaError._MAX_POLL_EXCEEDED, Event.KAFKA_ERROR),
    ],
)
def test_an_error_of_the_client_is_said_and_reading_goes_on(
    turned: Turned, code: int, event: Event
) -> None:
    turned.turn(FakeMessage(error=KafkaError(code)), FakeMessage(response("r"), 0))
    turned.pass_time(1)
    assert len(turned.log.of(event)) == 1
    assert turned.keys == [b"r"]


def test_a_turn_ends_in_time_and_reads_the_rest_again(
    turned: Turned, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = turned.service._take_all

    def slowly(messages: Any) -> None:
        turned.clock.advance(len(messages))
        take(messages)

    monkeypatch.setattr(turned.service, "_take_all", slowly)
    turned.turn(*(FakeMessage(response(f"r-{at}"), at) for at in range(100)))
    # One by poll, then as many as lie between two looks at the clock; the next is read again.
    assert turned.consumer.assigned[0] == 65
    assert turned.service.totals()["message accepted"] == 65


def test_a_fatal_error_ends_the_loop(turned: Turned) -> None:
    fatal = KafkaError(KafkaError.FENCED_INSTANCE_ID, "fenced", True)
    with pytest.raises(KafkaFailureError, match="fenced"):
        turned.turn(FakeMessage(error=fatal))


def test_without_the_right_to_its_group_the_service_ends_instead_of_idling(turned: Turned) -> None:
    refused = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaFailureError, match="Group authorization failed"):
        turned.turn(FakeMessage(error=refused))


def test_an_error_of_our_own_names_the_message_that_it_comes_with(
    turned: Turned, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_message: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(turned.service._assigned["input", 0].core, "feed", broken)
    with pytest.raises(ZeroDivisionError) as raised:
        turned.send(response("r"), first=7)
    assert raised.value.__notes__ == ["at input:0:7"]


# The end


def _running(turned: Turned, *incoming: FakeMessage) -> Turned:
    """Let the service run by itself until it has read what is given to it."""
    turned.consumer.assign_at_poll = [at(-1001)]
    turned.consumer.incoming = list(incoming)
    poll = turned.consumer.poll

    def poll_or_stop(_timeout: float) -> FakeMessage | None:
        message = poll(_timeout)
        if message is None:
            turned.service.stop("SIGTERM")
        return message

    turned.consumer.poll = poll_or_stop  # type: ignore[method-assign]
    return turned


def test_a_stop_delivers_commits_and_leaves_the_group(make: Callable[..., Turned]) -> None:
    turned = _running(make(), FakeMessage(response("r"), 0), FakeMessage(chunk("open"), 1))
    turned.service.run()
    assert (turned.keys, turned.committed()) == ([b"r"], 2)
    assert turned.consumer.closed
    assert turned.log.of(Event.SHUTDOWN_REQUESTED)[0]["reason"] == "SIGTERM"
    assert turned.service.totals() == {"message accepted": 2, "request published": 1}


def test_a_stop_tries_once_more_what_the_group_did_not_take(make: Callable[..., Turned]) -> None:
    turned = _running(make(), FakeMessage(response("r"), 0))
    turned.consumer.failures["commit"] = [failure(KafkaError.REBALANCE_IN_PROGRESS)]
    turned.service.run()
    assert turned.committed() == 1


@pytest.mark.parametrize("stuck", ["records", "commit"])
def test_a_stop_without_a_broker_ends_in_time_and_does_not_wait_for_the_client(
    make: Callable[..., Turned], monkeypatch: pytest.MonkeyPatch, stuck: str
) -> None:
    """The client's close waits three quarters of a minute for a commit on its way."""
    turned = _running(make(), FakeMessage(response("r"), 0))
    turned.producer.stuck = stuck == "records"
    turned.consumer.answers_commits = stuck != "commit"
    begun = turned.clock.monotonic()
    wait, poll = turned.committer.wait, turned.consumer.poll

    def short_wait(timeout: float) -> bool:
        done = wait(0.01) if turned.producer.stuck else wait(SECONDS)
        turned.clock.advance(0 if done else timeout)
        return done

    def long_poll(timeout: float) -> FakeMessage | None:
        turned.clock.advance(timeout)
        return poll(timeout)

    monkeypatch.setattr(turned.committer, "wait", short_wait)
    monkeypatch.setattr(turned.consumer, "poll", long_poll)
    turned.service.run()
    assert turned.clock.monotonic() - begun == pytest.approx(10, abs=1)
    assert not turned.consumer.closed
    [line] = turned.log.of(Event.COMMIT_FAILED)
    assert line["error"] == "still on its way when the service stopped"


def test_a_failure_leaves_the_group_without_a_commit(make: Callable[..., Turned]) -> None:
    """So that the others need not wait for the end of its session."""
    turned = _running(make(), FakeMessage(response("r"), 0))
    turned.producer.refused_at_once[b"r"] = KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(DeliveryError):
        turned.service.run()
    assert turned.consumer.closed
    assert turned.consumer.assigned == {}
    assert turned.committed() in (None, 0)


def test_a_failure_on_the_way_out_does_not_hide_the_first(
    make: Callable[..., Turned], monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = make()
    fatal = KafkaError(KafkaError.FENCED_INSTANCE_ID, "the first", True)
    turned.consumer.incoming = [FakeMessage(error=fatal)]

    def close() -> None:
        raise failure(WAIT_COORD)

    monkeypatch.setattr(turned.consumer, "close", close)
    with pytest.raises(KafkaFailureError, match="the first"):
        turned.service.run()
