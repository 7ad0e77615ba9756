"""Errors of the clients, with the codes and flags of the real ones."""

from confluent_kafka import KafkaError, KafkaException


def failure(code: int, what: str) -> KafkaException:
    return KafkaException(KafkaError(code, what))


def not_in_time(what: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, what, retriable=True))
