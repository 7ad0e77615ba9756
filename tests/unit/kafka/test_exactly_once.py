"""Records and positions become visible together or not at all, whatever the client reports."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer.kafka.batch import Batch, PartitionBatch
from consumer.kafka.errors import (
    ClientsLostError,
    ClusterError,
    DeliveryError,
    FencedError,
    KafkaFailureError,
    Stopped,
)
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.outcome_counts import OutcomeCounts
from tests.unit.kafka.delivering import GROUP, TIMEOUT_S, Delivering, batch_of
from tests.unit.kafka.fakes import FENCED, STATE, TIMED_OUT, Json, at, failure, output

ALL = ["begin_transaction", "produce r", "send_offsets_to_transaction", "commit_transaction"]
LATER = ALL[2:]
MOVED_ON = failure(KafkaError.ILLEGAL_GENERATION, abortable=True)
UNREACHABLE = failure(KafkaError._TRANSPORT, retriable=True)
RELEASE_OFFSETS = ["begin_transaction", "send_offsets_to_transaction", "abort_transaction"]


@pytest.fixture
def made() -> Delivering:
    return Delivering()


@pytest.fixture
def ready(made: Delivering) -> Delivering:
    return made.start()


def aborted(delivering: Delivering) -> bool:
    return delivering.deliver(output()).error is not None


# The parts of a transaction


def test_a_batch_is_one_transaction_of_records_and_positions(ready: Delivering) -> None:
    for _ in range(2):
        assert not aborted(ready)
    assert ready.producer.calls == ALL * 2
    assert (ready.keys, ready.committed) == ([b"r", b"r"], 7)
    assert ready.producer.groups == [GROUP] * 2


def test_messages_are_acknowledged_before_their_positions_are_sent(
    ready: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service finds a rejected message before that, and sends it again in its own way."""
    unacknowledged: list[int] = []
    send = ready.producer.send_offsets_to_transaction

    def sending(*args: object) -> None:
        unacknowledged.append(len(ready.producer))
        send(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(ready.producer, "send_offsets_to_transaction", sending)
    assert not aborted(ready)
    assert unacknowledged == [0]


def test_positions_without_records_are_committed_too(ready: Delivering) -> None:
    assert ready.deliver().error is None
    assert (ready.keys, ready.committed) == ([], 7)


@pytest.mark.parametrize(
    ("length", "partitions", "chunks"), [(4000, 200, [65, 65, 65, 5]), (300 << 10, 2, [1, 1])]
)
def test_positions_are_sent_in_chunks_that_fit_a_request(
    ready: Delivering, length: int, partitions: int, chunks: list[int]
) -> None:
    """Brokers close the connection on a larger request, and no commit would succeed."""
    metadata = "m" * length
    shares = [PartitionBatch(at(7, n, metadata), [], OutcomeCounts()) for n in range(partitions)]
    assert ready.delivery.deliver(Batch(shares, GROUP)).error is None
    assert [len(chunk) for chunk in ready.producer.chunks] == chunks
    assert length > 256 << 10 or max(chunks) * length <= 256 << 10
    sent = [one.partition for chunk in ready.producer.chunks for one in chunk]
    assert sent == list(range(partitions)), "each once"
    assert ready.producer.calls.count("commit_transaction") == 1
    assert ready.producer.groups == [GROUP] * len(chunks)


# Transient errors


@pytest.mark.parametrize("call", LATER)
@pytest.mark.parametrize(
    "error",
    [
        failure(TIMED_OUT, retriable=True),
        failure(KafkaError._CONFLICT, retriable=True),
        failure(KafkaError.NOT_COORDINATOR),
    ],
)
def test_the_same_call_is_repeated_after_a_transient_error(
    ready: Delivering, call: str, error: KafkaException
) -> None:
    """A commit after offsets that were not sent would commit records without their positions."""
    ready.fails(call, error, error)
    assert not aborted(ready)
    again = ALL.index(call)
    assert ready.producer.calls == ALL[:again] + [call] * 3 + ALL[again + 1 :]
    assert (ready.keys, ready.committed) == ([b"r"], 7)


def test_an_abort_is_repeated_too(ready: Delivering) -> None:
    ready.fails("commit_transaction", MOVED_ON)
    ready.fails("abort_transaction", failure(TIMED_OUT, retriable=True))
    assert aborted(ready)
    assert ready.producer.calls == [*ALL, "abort_transaction", "abort_transaction"]


def test_there_is_a_pause_between_repeated_calls(ready: Delivering) -> None:
    begun = ready.clock.monotonic()
    ready.fails("commit_transaction", *[failure(KafkaError._CONFLICT, retriable=True)] * 5)
    assert not aborted(ready)
    assert ready.clock.monotonic() - begun == pytest.approx(0.5)


def test_long_retries_are_logged_now_and_then(ready: Delivering) -> None:
    ready.fails("commit_transaction", *[UNREACHABLE] * 310)
    assert not aborted(ready)
    lines = ready.log.of(LogEvent.KAFKA_ERROR)
    assert [line["action"] for line in lines] == ["trying again"] * 3


@pytest.mark.parametrize("call", LATER)
def test_a_stop_ends_the_retries(ready: Delivering, call: str) -> None:
    ready.fails(call, *[UNREACHABLE] * 10_000)
    ready.delivery.stop()
    with pytest.raises(Stopped):
        ready.deliver()
    assert ready.committed is None


# Aborts


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
def test_after_an_abort_nothing_is_visible_and_the_batch_can_be_delivered_again(
    ready: Delivering, call: str, code: int
) -> None:
    ready.fails(call, failure(code, abortable=True))
    assert aborted(ready)
    assert ready.producer.calls[-1] == "abort_transaction"
    assert (ready.keys, ready.committed) == ([], None)
    [line] = ready.log.of(LogEvent.TRANSACTION_ABORTED)
    assert line == line | {"level": "warning", "error": "as the test says", "outputs": 1}
    ready.producer.calls.clear()
    assert not aborted(ready)
    assert ready.producer.calls == ALL
    assert (ready.keys, ready.committed) == ([b"r"], 7)


def test_a_message_that_the_client_rejects_after_an_error_aborts_the_transaction(
    ready: Delivering,
) -> None:
    """The client rejects messages without the reason; the next call has it."""
    ready.fails("produce", failure(STATE))
    assert aborted(ready)
    assert ready.producer.calls == RELEASE_OFFSETS


def test_messages_that_an_abort_has_purged_do_not_stop_the_service(
    ready: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are delivered again with their batch; a DeliveryError would end the service."""
    produce = ready.producer.produce

    def second_fails(topic: str, **message: object) -> None:
        if message["key"] == b"b":
            ready.fails("produce", failure(STATE))
        produce(topic, **message)

    monkeypatch.setattr(ready.producer, "produce", second_fails)
    assert ready.deliver(output("a"), output("b")).error is not None
    assert not ready.log.of(LogEvent.DELIVERY_FAILED)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.INVALID_TXN_STATE,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError._MSG_TIMED_OUT,
    ],
)
def test_a_message_that_fails_with_its_transaction_is_delivered_again(code: int) -> None:
    """Nothing is wrong with the message: another transaction delivers it."""
    codes = iter([code])
    ready = Delivering(lambda *_: next(codes, None)).start()
    assert ready.deliver_until_committed(output()) > 0
    assert ready.keys == [b"r"]
    assert not ready.log.of(LogEvent.DELIVERY_FAILED)


def test_the_logged_error_is_the_cause_and_not_its_consequence() -> None:
    codes = iter([KafkaError._PURGE_QUEUE, KafkaError.MSG_SIZE_TOO_LARGE])
    made = Delivering(lambda *_: next(codes, None)).start()
    assert made.deliver(output("a"), output("b")).error is not None
    [line] = made.log.of(LogEvent.TRANSACTION_ABORTED)
    assert line["error"] == KafkaError(KafkaError.MSG_SIZE_TOO_LARGE).str()


def test_an_abort_changes_nothing_in_the_batch_that_was_handed_over() -> None:
    """The main thread may read it at any time."""
    codes = iter([KafkaError.INVALID_TIMESTAMP])
    made = Delivering(lambda *_: next(codes, None)).start()
    outputs = [output("a"), output("b")]
    batch = batch_of(*outputs)
    result = made.delivery.deliver(batch)
    assert batch == batch_of(*outputs)
    assert [one.timestamp for one in result.batch.partitions[0].outputs] == [0, 5]


def test_a_message_that_will_always_be_rejected_leaves_no_transaction_open() -> None:
    """An open one would hide what other producers write, until brokers abort it."""
    ready = Delivering(lambda *_: KafkaError.TOPIC_AUTHORIZATION_FAILED).start()
    with pytest.raises(DeliveryError, match="topic 'records'"):
        ready.deliver(output())
    assert ready.producer.calls == [*ALL[:2], "abort_transaction"]
    assert ready.committed is None


def test_after_a_rejection_nothing_more_of_its_transaction_is_sent() -> None:
    """It would be purged in any case."""

    def rejects(_message: Json, batch: list[Json]) -> int | None:
        large = any(one["key"] == b"large" for one in batch)
        return KafkaError.MSG_SIZE_TOO_LARGE if large else None

    ready = Delivering(rejects, room=1).start()
    ready.deliver_until_committed(output("large"), *[output(f"r{n}") for n in range(9)])
    assert ready.keys == [f"r{number}".encode() for number in range(9)]
    assert ready.dropped == 1


# The end of a producer


@pytest.mark.parametrize("call", ["begin_transaction", "poll", *LATER, "abort_transaction"])
def test_a_producer_that_is_fenced_early_names_the_setting(ready: Delivering, call: str) -> None:
    """Two instances with one id would fence each other for ever."""
    if call == "abort_transaction":
        ready.fails("commit_transaction", MOVED_ON)
    ready.fails(call, failure(FENCED, fatal=True))
    with pytest.raises(FencedError, match=r"'mine'.*the setting transactional_id"):
        ready.deliver(output())
    [line] = ready.log.of(LogEvent.PRODUCER_FENCED)
    assert line == line | {"level": "error", "transactional_id": "mine"}


@pytest.mark.parametrize("suspended", [False, True])
def test_a_producer_that_is_fenced_late_was_only_slow(
    ready: Delivering, monkeypatch: pytest.MonkeyPatch, *, suspended: bool
) -> None:
    """Brokers fence a producer after its timeout too; on a suspended machine, by the wall clock."""
    commit = ready.producer.commit_transaction

    def commit_slowly(timeout: float) -> None:
        if suspended:
            now = ready.clock.wall() + round(TIMEOUT_S * 1000)
            monkeypatch.setattr(ready.clock, "wall", lambda: now)
        else:
            ready.clock.advance(TIMEOUT_S)
        commit(timeout)

    monkeypatch.setattr(ready.producer, "commit_transaction", commit_slowly)
    ready.fails("commit_transaction", failure(FENCED, fatal=True))
    with pytest.raises(ClientsLostError, match="producer"):
        ready.deliver(output())
    assert not ready.log.of(LogEvent.PRODUCER_FENCED)


def test_the_age_of_a_transaction_does_not_include_earlier_ones(ready: Delivering) -> None:
    assert not aborted(ready)
    ready.clock.advance(3_600)
    ready.fails("commit_transaction", failure(FENCED, fatal=True))
    with pytest.raises(FencedError):
        ready.deliver(output())


@pytest.mark.parametrize(
    "code", [KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID]
)
def test_after_any_other_fatal_error_the_clients_have_to_be_replaced(
    ready: Delivering, code: int
) -> None:
    ready.fails("commit_transaction", failure(code, fatal=True))
    with pytest.raises(ClientsLostError, match="producer: as the test says"):
        ready.deliver(output())


def test_after_a_failed_abort_the_clients_have_to_be_replaced(ready: Delivering) -> None:
    """The state of such a producer is unknown."""
    ready.fails("begin_transaction", failure(STATE))
    with pytest.raises(ClientsLostError):
        ready.deliver(output())


@pytest.mark.parametrize(
    "code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED]
)
def test_a_missing_permission_stops_the_service(ready: Delivering, code: int) -> None:
    ready.fails("send_offsets_to_transaction", failure(code, abortable=True))
    with pytest.raises(KafkaFailureError, match="as the test says"):
        ready.deliver(output())
    assert ready.producer.calls[-1] == "abort_transaction"


# The start


def test_no_transaction_begins_before_the_start(made: Delivering) -> None:
    """The open transaction of the id's last owner would be neither committed nor aborted."""
    with pytest.raises(ClientsLostError):
        made.deliver(output())
    assert (made.keys, made.committed) == ([], None)


def test_a_start_takes_over_the_id_and_releases_offsets_that_a_broker_has_left_open(
    made: Delivering,
) -> None:
    made.fails("init_transactions", *[UNREACHABLE] * 20)  # It waits for a coordinator.
    made.delivery.start()
    assert made.producer.calls == [*["init_transactions"] * 21, *RELEASE_OFFSETS]
    assert made.producer.groups == [GROUP]
    assert made.committed is None
    assert not aborted(made)


def test_a_start_succeeds_without_the_permission_to_release_offsets(made: Delivering) -> None:
    rejected = failure(KafkaError.TOPIC_AUTHORIZATION_FAILED, abortable=True)
    made.fails("send_offsets_to_transaction", rejected)
    made.delivery.start()
    assert made.producer.calls[-1] == "abort_transaction"
    assert not aborted(made)


@pytest.mark.parametrize(
    ("call", "code", "expected", "match"),
    [
        (
            "init_transactions",
            KafkaError.INVALID_TRANSACTION_TIMEOUT,
            ClusterError,
            r"transaction\.timeout\.ms is .*transaction\.max",
        ),
        (
            "init_transactions",
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            KafkaFailureError,
            "transactional id 'mine'",
        ),
        (
            "init_transactions",
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaFailureError,
            "transactional id 'mine'",
        ),
        ("send_offsets_to_transaction", KafkaError._FATAL, ClientsLostError, "as the test says"),
    ],
)
def test_a_fatal_error_ends_the_start_with_its_meaning(
    made: Delivering, call: str, code: int, expected: type[Exception], match: str
) -> None:
    made.fails(call, failure(code, fatal=True))
    with pytest.raises(expected, match=match):
        made.delivery.start()


def test_a_stop_ends_a_start(made: Delivering) -> None:
    made.fails("init_transactions", *[UNREACHABLE] * 10_000)
    made.delivery.stop()
    with pytest.raises(Stopped):
        made.delivery.start()
