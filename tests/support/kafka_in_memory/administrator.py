"""An admin client of the broker in memory, as far as the service asks one while it runs."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from msgspec import Struct

from tests.support.kafka_in_memory.broker import MemoryBroker


class MemoryAdministrator:
    """Says which ids topics have.

    Args:
        broker: the cluster.

    Attributes:
        is_silent: whether questions stay unanswered.

    """

    def __init__(self, broker: MemoryBroker) -> None:
        self.is_silent = False
        self._broker = broker

    def is_reachable(self, _timeout: float) -> bool:
        return not self._broker.away

    def describe_topics(self, topics: Iterable[str]) -> Mapping[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {topic: Future() for topic in sorted(topics)}
        for topic, answer in answers.items():
            if self.is_silent:
                continue
            try:
                answer.set_result(self._describe(topic))
            except KafkaException as error:
                answer.set_exception(error)
        return answers

    def _describe(self, topic: str) -> "_Description":
        self._broker.call("administrator.describe_topics")
        if not self._broker.size_of(topic):
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return _Description(self._broker.topic_id(topic))


class _Description(Struct, frozen=True):
    topic_id: str
