"""Ids of topics, which tell a recreated topic from the deleted one of the same name."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from consumer.core.checkpoint import topic_hash


class TopicIds(Protocol):
    """Answers which id a topic has."""

    def describe_topics(self, topics: Iterable[str]) -> Mapping[str, Future[Any]]:
        """Ask for topics; each answer has a `topic_id`, or raises `KafkaException`."""
        ...


def hash_of(answer: Future[Any]) -> int:
    """Return the hash of the topic's id in an answer.

    Raises:
        KafkaException: the cluster does not say. A guess would invalidate every checkpoint.

    """
    return topic_hash(str(answer.result().topic_id))
