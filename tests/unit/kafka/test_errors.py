"""Which errors are worth a second question, and which are for the administrator."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer.kafka.errors import cause_of, is_forbidden, is_transient
from tests.unit.kafka.fakes import failure


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._WAIT_COORD, True),
        (KafkaError._TRANSPORT, True),
        (KafkaError.NOT_COORDINATOR, True),
        (KafkaError.UNSTABLE_OFFSET_COMMIT, True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, False),
        (KafkaError.FENCED_INSTANCE_ID, False),
        (KafkaError._FENCED, False),
        (KafkaError._STATE, False),
        (KafkaError._INVALID_ARG, False),
    ],
)
def test_what_may_pass(code: int, *, expected: bool) -> None:
    assert is_transient(KafkaError(code)) is expected


def test_what_the_client_calls_retriable_may_pass() -> None:
    """It knows of its own transactional calls, whatever their code."""
    assert is_transient(cause_of(failure(KafkaError._CONFLICT, retriable=True)))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, True),
        (KafkaError._AUTHENTICATION, False),
        (KafkaError.ILLEGAL_GENERATION, False),
    ],
)
def test_what_is_forbidden(code: int, *, expected: bool) -> None:
    assert is_forbidden(KafkaError(code)) is expected
    assert not (expected and is_transient(KafkaError(code))), "asking again would be in vain"


def test_the_cause_of_an_exception_is_the_error_that_it_carries() -> None:
    error = KafkaError(KafkaError._FENCED)
    assert cause_of(KafkaException(error)) is error
