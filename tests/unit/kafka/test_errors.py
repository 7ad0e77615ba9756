"""Which errors are transient, and which need a permission."""

import pytest
from confluent_kafka import KafkaError

from consumer.kafka.errors import cause_of, is_forbidden, is_transient
from tests.unit.kafka.fakes import failure


@pytest.mark.parametrize(
    ("code", "transient", "forbidden"),
    [
        (KafkaError._WAIT_COORD, True, False),
        (KafkaError._TRANSPORT, True, False),
        (KafkaError.NOT_COORDINATOR, True, False),
        (KafkaError.UNSTABLE_OFFSET_COMMIT, True, False),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, False, True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, False, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False, True),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False, True),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, False, False),
        (KafkaError.FENCED_INSTANCE_ID, False, False),
        (KafkaError.ILLEGAL_GENERATION, False, False),
        (KafkaError._AUTHENTICATION, False, False),
        (KafkaError._FENCED, False, False),
        (KafkaError._STATE, False, False),
        (KafkaError._INVALID_ARG, False, False),
    ],
)
def test_an_error_is_transient_or_forbidden_or_neither(
    code: int, *, transient: bool, forbidden: bool
) -> None:
    error = cause_of(failure(code))
    assert (is_transient(error), is_forbidden(error)) == (transient, forbidden)


@pytest.mark.parametrize(
    ("fatal", "abortable", "transient"),
    [(False, False, True), (True, False, False), (False, True, False)],
)
def test_the_flags_of_transactional_calls_decide_whatever_their_code(
    *, fatal: bool, abortable: bool, transient: bool
) -> None:
    for code in (KafkaError._CONFLICT, KafkaError._TRANSPORT):
        error = failure(code, retriable=True, fatal=fatal, abortable=abortable)
        assert is_transient(cause_of(error)) is transient
