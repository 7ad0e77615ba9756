"""The Kafka clients and what is asked of the cluster before the service starts."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from msgspec import Struct

from consumer.checkpoint import topic_hash
from consumer.logs import librdkafka_logger
from consumer.settings import Settings

Client = TypeVar("Client", Consumer, Producer, AdminClient)

_TIMEOUT_S: Final = 30.0
_EMBEDDED: Final = "mockCluster"  # How librdkafka's mock cluster begins its id.
_DEFAULT_MESSAGE_BYTES: Final = 1_000_000  # Of librdkafka: message.max.bytes.

_SHARED: Final[Mapping[str, Any]] = {"client.id": "acceptance-consumer"}
_CONSUMER: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Jumping over unread data or publishing a topic again is for a person to decide, not a default.
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "cooperative-sticky",
    "fetch.queue.backoff.ms": 20,
    "fetch.wait.max.ms": 100,
}
_PRODUCER: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",  # As the Java clients, so that keys meet those of other tools.
    "compression.type": "lz4",
    "linger.ms": 5,
    "message.timeout.ms": 0,  # A record waits for its broker as long as it takes.
    "delivery.report.only.error": True,
    "retry.backoff.ms": 20,
}
_NOT_OF_NEW_PROTOCOL: Final = (
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
)


class ClusterError(Exception):
    """The cluster cannot be used as the settings say; the message says why."""


class Cluster(Struct, frozen=True):
    """What the cluster says of itself at the start.

    Attributes:
        cluster_id: id of the cluster.
        record_limit: most bytes of a message that the output topic takes.
        letter_limit: most bytes of a message that the dead-letter topic takes.
        answers_admin: whether questions about topics are answered; the embedded broker lets them
            time out.

    """

    cluster_id: str
    answers_admin: bool
    record_limit: int
    letter_limit: int


def consumer_config(settings: Settings) -> dict[str, Any]:
    """Return the consumer's librdkafka properties."""
    config = {
        **_shared(settings),
        **_CONSUMER,
        "group.id": settings.group,
        **settings.kafka,
        **settings.kafka_consumer,
    }
    if config.get("group.protocol") == "consumer":
        for name in _NOT_OF_NEW_PROTOCOL:
            config.pop(name, None)
    return config


def producer_config(settings: Settings) -> dict[str, Any]:
    """Return the producer's librdkafka properties."""
    return {**_shared(settings), **_PRODUCER, **settings.kafka, **settings.kafka_producer}


def make_consumer(settings: Settings) -> Consumer:
    """Return the consumer.

    Raises:
        ClusterError: a property is refused.

    """
    return _made(Consumer, consumer_config(settings))


def make_producer(settings: Settings) -> Producer:
    """Return the producer.

    Raises:
        ClusterError: a property is refused.

    """
    return _made(Producer, producer_config(settings))


def make_admin(settings: Settings) -> AdminClient:
    """Return the admin client.

    Raises:
        ClusterError: a property is refused.

    """
    return _made(AdminClient, {**_shared(settings), **settings.kafka})


def inspect_cluster(settings: Settings, admin: AdminClient) -> Cluster:
    """Look at the cluster and the topics before anything is read.

    Raises:
        ClusterError: no broker answers, or a topic is missing or may not be described.

    """
    try:
        metadata = admin.list_topics(timeout=_TIMEOUT_S)
    except KafkaException as error:
        raise ClusterError(
            f"no broker of {settings.bootstrap_servers!r} answers: {_text(error)}"
        ) from error
    outputs = [settings.output_topic]
    if settings.dead_letters != "off":
        outputs.append(settings.dead_letter_topic)
    named = [topic for topic in settings.topics if not topic.startswith("^")]
    for topic in [*named, *outputs]:
        found = metadata.topics.get(topic)
        if found is None:
            raise ClusterError(f"topic {topic!r} does not exist")
        if found.error is not None:
            raise ClusterError(f"topic {topic!r}: {found.error.str()}")
    limit = int(producer_config(settings).get("message.max.bytes", _DEFAULT_MESSAGE_BYTES))
    cluster_id = str(metadata.cluster_id)
    answers_admin = not cluster_id.startswith(_EMBEDDED)
    limits = _topic_limits(admin, outputs if answers_admin else (), limit)
    return Cluster(
        cluster_id,
        answers_admin,
        limits.get(settings.output_topic, limit),
        limits.get(settings.dead_letter_topic, limit),
    )


def topic_hashes(admin: AdminClient | None, topics: Iterable[str]) -> dict[str, int]:
    """Return a hash of each topic's id, or of its name where nobody can tell the id."""
    names = sorted(set(topics))
    hashes = {name: topic_hash(name) for name in names}
    if admin is None or not names:
        return hashes
    futures = admin.describe_topics(TopicCollection(names), request_timeout=_TIMEOUT_S)
    for name, future in futures.items():
        try:
            hashes[name] = topic_hash(str(future.result().topic_id))
        except KafkaException:
            continue
    return hashes


def _shared(settings: Settings) -> dict[str, Any]:
    return {
        **_SHARED,
        "bootstrap.servers": settings.bootstrap_servers,
        "logger": librdkafka_logger(),
    }


def _made(client: type[Client], config: dict[str, Any]) -> Client:
    try:
        return client(config)
    except (KafkaException, ValueError, TypeError) as error:
        raise ClusterError(f"librdkafka refuses the settings: {_text(error)}") from error


def _topic_limits(admin: AdminClient, topics: Iterable[str], limit: int) -> dict[str, int]:
    """Return the largest message of each topic, as far as the cluster lets us see it."""
    limits: dict[str, int] = {}
    for topic in topics:
        limits[topic] = limit
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            config = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource]
            limits[topic] = min(limit, int(config.result()["max.message.bytes"].value))
        except (KafkaException, KeyError, TypeError, ValueError):
            continue  # Not everybody may describe configurations; the client's limit holds anyway.
    return limits


def _text(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return cause.str() if isinstance(cause, confluent_kafka.KafkaError) else str(error)
