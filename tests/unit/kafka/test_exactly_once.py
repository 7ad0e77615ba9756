"""Records and positions become visible together or not at all, whatever the client reports."""

from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from consumer.core.output_messages import OutputMessage
from consumer.kafka.batch import Batch, PartitionBatch
from consumer.kafka.errors import (
    ClientsLostError,
    ClusterError,
    DeliveryError,
    FencedError,
    KafkaFailureError,
    Stopped,
)
from consumer.kafka.exactly_once import ExactlyOnce
from consumer.kafka.sender import Sender
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.outcome_counts import OutcomeCounts
from tests.support.manual_clock import ManualClock
from tests.unit.kafka.fakes import (
    FENCED,
    STATE,
    TIMED_OUT,
    FakeProducer,
    Json,
    Log,
    at,
    failure,
    group_metadata,
    output,
)

TOPICS = {"record": "records", "dead_letter": "dead"}
TIMEOUT_S = 15.0
GROUP = group_metadata(3)
ALL = ["begin_transaction", "produce r", "send_offsets_to_transaction", "commit_transaction"]
ABORTED = [*ALL[:2], "abort_transaction"]
LATER = ["send_offsets_to_transaction", "commit_transaction"]


def _batch(*outputs: OutputMessage) -> Batch:
    return Batch([PartitionBatch(at(7), list(outputs), OutcomeCounts())], GROUP)


class Transacting:
    """Transactions with a fake broker, which are ready for a batch."""

    def __init__(
        self, refuses: Callable[[Json, list[Json]], int | None] = lambda _one, _batch: None
    ) -> None:
        self.clock, self.log = ManualClock(), Log()
        self.producer = FakeProducer(refuses)
        real = cast("Producer", self.producer)
        sender = Sender(real, TOPICS, self.log, transactional=True)
        self.transactions = ExactlyOnce(
            real, sender, "mine", TIMEOUT_S, GROUP, self.clock, self.log
        )

    def start(self) -> "Transacting":
        self.transactions.start()
        for told in (self.producer.calls, self.producer.pieces, self.producer.groups):
            told.clear()
        return self

    def fails(self, call: str, *errors: KafkaException) -> None:
        self.producer.failures[call] = list(errors)

    def deliver(self, *outputs: OutputMessage) -> bool:
        """Deliver a batch, or try to."""
        return self.transactions.deliver(_batch(*outputs or [output()])).error is None

    def deliver_until_it_counts(self, *outputs: OutputMessage) -> int:
        """Give a batch again as often as it comes to nothing, and return how often that was."""
        result, tries = self.transactions.deliver(_batch(*outputs)), 1
        self.dropped = result.dropped
        while result.error is not None:
            assert self.producer.commits == [], "nothing of it counts"
            result, tries = self.transactions.deliver(result.batch), tries + 1
            self.dropped += result.dropped
        return tries

    @property
    def keys(self) -> list[bytes]:
        return [message["key"] for message in self.producer.delivered]

    @property
    def committed(self) -> int | None:
        found = self.producer.stored.get(0)
        return None if found is None else found.offset


@pytest.fixture
def made() -> Transacting:
    return Transacting()


@pytest.fixture
def ready(made: Transacting) -> Transacting:
    return made.start()


# What a transaction is made of


def test_a_batch_is_one_transaction_of_its_records_and_its_positions(ready: Transacting) -> None:
    assert ready.deliver()
    assert ready.producer.calls == ALL
    assert (ready.keys, ready.committed) == ([b"r"], 7)
    assert ready.producer.groups == [GROUP]


def test_messages_are_acknowledged_before_their_positions_are_sent(
    ready: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused one is found before that, and sent again in its own way."""
    waiting: list[int] = []
    send = ready.producer.send_offsets_to_transaction

    def sending(*args: object) -> None:
        waiting.append(len(ready.producer))
        send(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(ready.producer, "send_offsets_to_transaction", sending)
    assert ready.deliver()
    assert waiting == [0]


def test_positions_without_records_are_committed_too(ready: Transacting) -> None:
    batch = Batch([PartitionBatch(at(7), [], OutcomeCounts())], GROUP)
    assert ready.transactions.deliver(batch).error is None
    assert (ready.keys, ready.committed) == ([], 7)


def test_one_transaction_follows_another(ready: Transacting) -> None:
    assert ready.deliver()
    assert ready.deliver()
    assert ready.producer.calls == ALL * 2


def test_positions_go_in_pieces_that_a_request_can_hold(ready: Transacting) -> None:
    """Brokers close the connection on a request that is too large, and no commit would pass."""
    parts = [PartitionBatch(at(7, one, "m" * 4000), [], OutcomeCounts()) for one in range(200)]
    assert ready.transactions.deliver(Batch(parts, GROUP)).error is None
    sizes = [sum(len(one.metadata or "") for one in piece) for piece in ready.producer.pieces]
    assert len(sizes) == 4
    assert max(sizes) <= 256 << 10
    sent = [one.partition for piece in ready.producer.pieces for one in piece]
    assert sent == list(range(200)), "each once"
    assert ready.producer.calls.count("commit_transaction") == 1
    assert ready.producer.groups == [GROUP] * 4


def test_metadata_larger_than_a_piece_goes_alone(ready: Transacting) -> None:
    parts = [PartitionBatch(at(7, one, "m" * (300 << 10)), [], OutcomeCounts()) for one in range(2)]
    assert ready.transactions.deliver(Batch(parts, GROUP)).error is None
    assert [len(piece) for piece in ready.producer.pieces] == [1, 1]


# What may pass


@pytest.mark.parametrize("call", LATER)
@pytest.mark.parametrize(
    "error",
    [
        failure(TIMED_OUT, retriable=True),
        failure(KafkaError._CONFLICT, retriable=True),
        failure(KafkaError.NOT_COORDINATOR),
    ],
)
def test_the_same_call_is_made_again_where_that_may_help(
    ready: Transacting, call: str, error: KafkaException
) -> None:
    """A commit after offsets that were not sent would commit records without their positions."""
    ready.fails(call, error, error)
    assert ready.deliver()
    again = ALL.index(call)
    assert ready.producer.calls == ALL[:again] + [call] * 3 + ALL[again + 1 :]
    assert (ready.keys, ready.committed) == ([b"r"], 7)


def test_an_abort_is_made_again_too(ready: Transacting) -> None:
    ready.fails("commit_transaction", failure(KafkaError.ILLEGAL_GENERATION, abortable=True))
    ready.fails("abort_transaction", failure(TIMED_OUT, retriable=True))
    assert not ready.deliver()
    assert ready.producer.calls == [*ALL, "abort_transaction", "abort_transaction"]


def test_a_call_that_has_not_waited_itself_is_not_made_again_at_once(ready: Transacting) -> None:
    begun = ready.clock.monotonic()
    ready.fails("commit_transaction", *[failure(KafkaError._CONFLICT, retriable=True)] * 5)
    assert ready.deliver()
    assert ready.clock.monotonic() - begun == pytest.approx(0.5)


def test_long_waiting_is_said_now_and_then(ready: Transacting) -> None:
    ready.fails("commit_transaction", *[failure(KafkaError._TRANSPORT, retriable=True)] * 310)
    assert ready.deliver()
    lines = ready.log.of(LogEvent.KAFKA_ERROR)
    assert [line["action"] for line in lines] == ["trying again"] * 3


@pytest.mark.parametrize("call", LATER)
def test_a_stop_ends_the_waiting(ready: Transacting, call: str) -> None:
    ready.fails(call, *[failure(KafkaError._TRANSPORT, retriable=True)] * 10_000)
    ready.transactions.stop()
    with pytest.raises(Stopped):
        ready.transactions.deliver(Batch([PartitionBatch(at(7), [], OutcomeCounts())], GROUP))
    assert ready.committed is None


# What is aborted


@pytest.mark.parametrize("call", LATER)
@pytest.mark.parametrize(
    "code",
    [
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        TIMED_OUT,  # "1 message(s) timed out"
    ],
)
def test_a_transaction_that_cannot_be_committed_is_aborted_and_nothing_of_it_counts(
    ready: Transacting, call: str, code: int
) -> None:
    ready.fails(call, failure(code, abortable=True))
    assert not ready.deliver()
    assert ready.producer.calls[-1] == "abort_transaction"
    assert (ready.keys, ready.committed) == ([], None)
    [line] = ready.log.of(LogEvent.TRANSACTION_ABORTED)
    assert line == line | {"level": "warning", "error": "as the test says", "outputs": 1}


def test_after_an_abort_the_next_transaction_is_as_any_other(ready: Transacting) -> None:
    ready.fails("commit_transaction", failure(KafkaError.ILLEGAL_GENERATION, abortable=True))
    assert not ready.deliver()
    ready.producer.calls.clear()
    assert ready.deliver()
    assert ready.producer.calls == ALL
    assert (ready.keys, ready.committed) == ([b"r"], 7)


def test_a_message_that_is_not_taken_after_an_error_leads_to_an_abort(ready: Transacting) -> None:
    """The client refuses messages without saying why; the next call does, and must not count."""
    ready.fails("produce", failure(STATE))
    assert not ready.deliver()
    assert ready.producer.calls == [
        "begin_transaction",
        "send_offsets_to_transaction",
        "abort_transaction",
    ]


def test_messages_that_an_abort_has_purged_are_no_reason_to_stop(
    ready: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is purged is delivered again with its batch; a DeliveryError would end the service."""
    outputs = [output("a"), output("b")]
    produce = ready.producer.produce

    def second_fails(topic: str, **message: object) -> None:
        if message["key"] == b"b":
            ready.fails("produce", failure(STATE))
        produce(topic, **message)  # type: ignore[arg-type]

    monkeypatch.setattr(ready.producer, "produce", second_fails)
    assert not ready.deliver(*outputs)
    assert not ready.log.of(LogEvent.DELIVERY_FAILED)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError._MSG_TIMED_OUT,
    ],
)
def test_messages_that_fail_because_their_transaction_does_are_given_again(code: int) -> None:
    """The message itself is right, and another transaction will take it."""
    codes = iter([code])
    ready = Transacting(lambda _message, _batch: next(codes, None)).start()
    assert not ready.deliver()
    assert ready.deliver()
    assert ready.keys == [b"r"]


def test_a_cause_is_named_before_what_it_has_caused() -> None:
    codes = iter([KafkaError._PURGE_QUEUE, KafkaError.MSG_SIZE_TOO_LARGE])
    made = Transacting(lambda _message, _batch: next(codes, None)).start()
    assert not made.deliver(output("a"), output("b"))
    [line] = made.log.of(LogEvent.TRANSACTION_ABORTED)
    assert line["error"] == KafkaError(KafkaError.MSG_SIZE_TOO_LARGE).str()


# Messages that the broker refuses


def _too_large(message: Json, batch: list[Json]) -> int | None:
    """Refuse all that share a batch with one that is too large, as brokers do."""
    if not any(one["key"] == b"large" for one in batch):
        return None
    if message["key"] == b"large":
        return KafkaError.MSG_SIZE_TOO_LARGE
    return KafkaError._INVALID_DIFFERENT_RECORD


def test_only_a_message_that_is_too_large_alone_is_dropped_and_this_is_said() -> None:
    ready = Transacting(_too_large).start()
    assert ready.deliver_until_it_counts(output("a"), output("large"), output("b")) == 3
    assert (ready.keys, ready.committed) == ([b"a", b"b"], 7)
    assert ready.dropped == 1
    [line] = ready.log.of(LogEvent.DELIVERY_FAILED)
    assert line == line | {"request_id": "large", "outputs": 1, "action": "dropped"}


def test_a_batch_that_is_too_large_only_together_loses_nothing() -> None:
    ready = Transacting(
        lambda _one, batch: KafkaError.MSG_SIZE_TOO_LARGE if len(batch) > 1 else None
    ).start()
    ready.deliver_until_it_counts(*[output(f"r{number}") for number in range(5)])
    assert len(ready.keys) == 5
    assert ready.dropped == 0


def test_a_message_that_the_client_refuses_at_once_is_dropped_too(ready: Transacting) -> None:
    ready.producer.refused_at_once[b"large"] = KafkaError.MSG_SIZE_TOO_LARGE
    assert ready.deliver_until_it_counts(output("large"), output("small")) == 2
    assert (ready.keys, ready.committed) == ([b"small"], 7)
    assert ready.dropped == 1


@pytest.mark.parametrize("code", [KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD])
def test_a_timestamp_that_is_refused_is_left_to_the_producer(code: int) -> None:
    def refuses(message: Json, batch: list[Json]) -> int | None:
        if not any(one["timestamp"] == 666 for one in batch):
            return None
        return code if message["timestamp"] == 666 else KafkaError._INVALID_DIFFERENT_RECORD

    ready = Transacting(refuses).start()
    assert ready.deliver_until_it_counts(output("a"), output("b", timestamp=666), output("c"))
    assert ready.keys == [b"a", b"b", b"c"]
    assert [message["timestamp"] for message in ready.producer.delivered] == [5, 0, 5]


def test_what_will_never_be_taken_stops_the_service_and_leaves_no_transaction_open() -> None:
    """An open one would hide what other producers write, until brokers give it up."""
    ready = Transacting(lambda _one, _batch: KafkaError.TOPIC_AUTHORIZATION_FAILED).start()
    with pytest.raises(DeliveryError, match="topic 'records'"):
        ready.deliver()
    assert ready.producer.calls == ABORTED
    assert ready.committed is None


def test_a_refused_message_does_not_take_the_next_ones_with_it() -> None:
    """After a refusal nothing more of its transaction is sent: it would be purged in any case."""
    ready = Transacting(_too_large).start()
    ready.producer._room = 1
    ready.deliver_until_it_counts(output("large"), *[output(f"r{number}") for number in range(9)])
    assert ready.keys == [f"r{number}".encode() for number in range(9)]
    assert ready.dropped == 1


# The end of a producer


@pytest.mark.parametrize("call", ["begin_transaction", "poll", *LATER, "abort_transaction"])
def test_a_producer_that_is_fenced_early_has_a_rival_and_the_setting_is_named(
    ready: Transacting, call: str
) -> None:
    """Two instances with one id would fence each other for ever, and neither would get far."""
    if call == "abort_transaction":
        ready.fails("commit_transaction", failure(KafkaError.ILLEGAL_GENERATION, abortable=True))
    ready.fails(call, failure(FENCED, fatal=True))
    with pytest.raises(FencedError, match=r"'mine'.*the setting transactional_id"):
        ready.deliver()
    [line] = ready.log.of(LogEvent.PRODUCER_FENCED)
    assert line == line | {"level": "error", "transactional_id": "mine"}


def test_a_producer_that_is_fenced_late_was_only_slow(
    ready: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers end a transaction after its timeout, and then say the same as of a rival."""
    commit = ready.producer.commit_transaction

    def slowly(timeout: float) -> None:
        ready.clock.advance(TIMEOUT_S)
        commit(timeout)

    monkeypatch.setattr(ready.producer, "commit_transaction", slowly)
    ready.fails("commit_transaction", failure(FENCED, fatal=True))
    with pytest.raises(ClientsLostError, match="producer"):
        ready.deliver()
    assert not ready.log.of(LogEvent.PRODUCER_FENCED)


def test_the_pause_of_a_machine_counts_though_its_monotonic_clock_stood_still(
    ready: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual machine that was suspended would look for a rival that does not exist."""
    now = ready.clock.wall()
    moments = iter([now, now + round(TIMEOUT_S * 1000)])
    monkeypatch.setattr(ready.clock, "wall", lambda: next(moments))
    ready.fails("commit_transaction", failure(FENCED, fatal=True))
    with pytest.raises(ClientsLostError, match="producer"):
        ready.deliver()


def test_a_timeout_above_that_of_the_brokers_is_a_wrong_setting(made: Transacting) -> None:
    made.fails("init_transactions", failure(KafkaError.INVALID_TRANSACTION_TIMEOUT, fatal=True))
    with pytest.raises(ClusterError, match=r"transaction\.timeout\.ms is .*transaction\.max"):
        made.transactions.start()


def test_an_old_transaction_does_not_make_a_young_one_old(ready: Transacting) -> None:
    assert ready.deliver()
    ready.clock.advance(3_600)
    ready.fails("commit_transaction", failure(FENCED, fatal=True))
    with pytest.raises(FencedError):
        ready.deliver()


@pytest.mark.parametrize(
    "error",
    [
        failure(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True),
        failure(KafkaError.UNKNOWN_PRODUCER_ID, fatal=True),
    ],
)
def test_any_other_fatal_error_ends_with_the_clients(
    ready: Transacting, error: KafkaException
) -> None:
    ready.fails("commit_transaction", error)
    with pytest.raises(ClientsLostError, match="producer: as the test says"):
        ready.deliver()


def test_an_abort_that_is_refused_ends_with_the_clients(ready: Transacting) -> None:
    """Nobody knows what state such a producer is in."""
    ready.fails("begin_transaction", failure(STATE))
    with pytest.raises(ClientsLostError):
        ready.deliver()


@pytest.mark.parametrize(
    "code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED]
)
def test_what_is_forbidden_stops_the_service(ready: Transacting, code: int) -> None:
    ready.fails("send_offsets_to_transaction", failure(code, abortable=True))
    with pytest.raises(KafkaFailureError, match="as the test says"):
        ready.deliver()
    assert ready.producer.calls[-1] == "abort_transaction"


# The start


def test_no_transaction_begins_before_the_id_is_taken_over(made: Transacting) -> None:
    """What the last owner left open would be neither committed nor given up."""
    with pytest.raises(ClientsLostError):
        made.deliver()
    assert (made.keys, made.committed) == ([], None)


def test_a_start_waits_for_a_coordinator(made: Transacting) -> None:
    made.fails("init_transactions", *[failure(KafkaError._TRANSPORT, retriable=True)] * 20)
    made.transactions.start()
    assert made.producer.calls[:22] == [*["init_transactions"] * 21, "begin_transaction"]
    assert made.deliver()


def test_a_start_releases_offsets_that_a_broker_has_left_open(made: Transacting) -> None:
    made.transactions.start()
    assert made.producer.calls == [
        "init_transactions",
        "begin_transaction",
        "send_offsets_to_transaction",
        "abort_transaction",
    ]
    assert made.producer.groups == [GROUP]
    assert made.committed is None


def test_what_hinders_that_hinders_no_start(made: Transacting) -> None:
    refused = failure(KafkaError.TOPIC_AUTHORIZATION_FAILED, abortable=True)
    made.fails("send_offsets_to_transaction", refused)
    made.transactions.start()
    assert made.producer.calls[-1] == "abort_transaction"
    assert made.deliver()


def test_a_fatal_error_meanwhile_ends_the_start(made: Transacting) -> None:
    made.fails("send_offsets_to_transaction", failure(KafkaError._FATAL, fatal=True))
    with pytest.raises(ClientsLostError):
        made.transactions.start()


def test_a_stop_ends_a_start(made: Transacting) -> None:
    made.fails("init_transactions", *[failure(KafkaError._TRANSPORT, retriable=True)] * 10_000)
    made.transactions.stop()
    with pytest.raises(Stopped):
        made.transactions.start()


@pytest.mark.parametrize(
    "error",
    [
        failure(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True),
        failure(KafkaError.CLUSTER_AUTHORIZATION_FAILED, fatal=True),
    ],
)
def test_a_start_that_is_forbidden_names_the_id(made: Transacting, error: KafkaException) -> None:
    made.fails("init_transactions", error)
    with pytest.raises(KafkaFailureError, match="transactional id 'mine'"):
        made.transactions.start()


def test_the_client_is_served_where_nothing_is_written(ready: Transacting) -> None:
    before = ready.producer.polls
    ready.transactions.idle()
    assert ready.producer.polls == before + 1
