"""The Kafka clients and what is asked of the cluster before the service starts."""

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.admin._resource import ResourceType
from msgspec import Struct

from consumer.checkpoint import topic_hash
from consumer.logs import MASK, is_secret, librdkafka_logger, mask_user_info
from consumer.settings import Settings

Client = TypeVar("Client", Consumer, Producer, AdminClient)
OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]

_TIMEOUT_S: Final = 10.0
_SILENT: Final = logging.getLogger("consumer.clients.silent")
_SILENT.disabled = True
_EMBEDDED: Final = "mockCluster"  # How librdkafka's mock cluster begins its id.
_DEFAULT_MESSAGE_BYTES: Final = 1_000_000  # Of librdkafka: message.max.bytes and batch.size.

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

# The client does not mark errors of consumers and of the admin client as retriable.
_MAY_PASS: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - the client's public constants are named so.
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - of one whose leader is not known.
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,  # Of a broker that has not heard of a new topic yet.
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)


class ClusterError(Exception):
    """The cluster cannot be used as the settings say; the message says why."""


class NoBrokerError(ClusterError):
    """No broker answers, which may pass."""


class Cluster(Struct, frozen=True):
    """What the cluster says of itself at the start.

    Attributes:
        cluster_id: id of the cluster.
        answers_admin: whether questions about topics are answered; the embedded broker lets them
            time out.
        record_limit: most bytes of a message that the output topic takes.
        letter_limit: most bytes of a message that the dead-letter topic takes.

    """

    cluster_id: str
    answers_admin: bool
    record_limit: int
    letter_limit: int


class Administrator:
    """The admin client, and the last trouble that it had.

    Args:
        settings: the settings.

    Raises:
        ClusterError: a property is refused.

    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._troubles: deque[str] = deque(maxlen=1)
        config = {
            **_shared(settings),
            **settings.kafka,
            "error_cb": lambda error: self._troubles.append(error.str()),
            "logger": _SILENT,  # What it would say is in the errors.
        }
        self.client = _made(AdminClient, config, settings)

    def inspect(self, timeout: float) -> Cluster:
        """Look at the cluster and the topics before anything is read.

        Raises:
            NoBrokerError: no broker answers within the timeout.
            ClusterError: a topic is missing or may not be described.

        """
        settings = self._settings
        metadata = self._metadata(timeout)
        outputs = [settings.output_topic]
        used = [("topics", topic) for topic in settings.topics if not topic.startswith("^")]
        used.append(("output_topic", settings.output_topic))
        if settings.dead_letters != "off":
            outputs.append(settings.dead_letter_topic)
            used.append(("dead_letter_topic", settings.dead_letter_topic))
        _check_topics(metadata, used)
        limit = int(producer_config(settings).get("message.max.bytes", _DEFAULT_MESSAGE_BYTES))
        cluster_id = str(metadata.cluster_id)
        answers_admin = not cluster_id.startswith(_EMBEDDED)
        limits = self._message_limits(outputs if answers_admin else (), limit)
        return Cluster(
            cluster_id,
            answers_admin,
            limits.get(settings.output_topic, limit),
            limits.get(settings.dead_letter_topic, limit),
        )

    def topic_hashes(self, topics: Iterable[str]) -> dict[str, int]:
        """Return a hash of each topic's id.

        Raises:
            KafkaException: the cluster does not tell. A guess would make every checkpoint foreign.

        """
        names = TopicCollection(sorted(set(topics)))
        futures = self.client.describe_topics(names, request_timeout=_TIMEOUT_S)
        return {name: topic_hash(str(future.result().topic_id)) for name, future in futures.items()}

    def _metadata(self, timeout: float) -> ClusterMetadata:
        try:
            return self.client.list_topics(timeout=timeout)
        except KafkaException as error:
            self.client.poll(0)  # Hands over its troubles.
            trouble = f" ({self._troubles[0]})" if self._troubles else ""
            servers = mask_user_info(repr(self._settings.bootstrap_servers))
            reason = _masked(f"{_text(error)}{trouble}", self._settings)
            raise NoBrokerError(
                f"bootstrap_servers: no broker of {servers} answers: {reason}"
            ) from error

    def _message_limits(self, topics: Iterable[str], limit: int) -> dict[str, int]:
        """Return the largest message of each topic, as far as the cluster lets us see it."""
        limits: dict[str, int] = {}
        for topic in topics:
            limits[topic] = limit
            resource = ConfigResource(ResourceType.TOPIC, topic)
            try:
                futures = self.client.describe_configs([resource], request_timeout=_TIMEOUT_S)
                config = futures[resource].result()
                limits[topic] = min(limit, int(config["max.message.bytes"].value))
            except (KafkaException, KeyError, TypeError, ValueError):
                continue  # Not everybody may see configurations; the client's limit holds anyway.
        return limits


def may_pass(error: KafkaError) -> bool:
    """Tell whether to ask again: brokers come and go, and leaders and coordinators move."""
    return error.retriable() or error.code() in _MAY_PASS


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


def producer_config(settings: Settings, limit: int = _DEFAULT_MESSAGE_BYTES) -> dict[str, Any]:
    """Return the producer's librdkafka properties.

    Args:
        settings: the settings.
        limit: what the output topics take at once. They hold it against whole batches, and the
            client does not divide one that is refused.

    """
    return {
        **_shared(settings),
        **_PRODUCER,
        "batch.size": min(limit, _DEFAULT_MESSAGE_BYTES),
        **settings.kafka,
        **settings.kafka_producer,
    }


def make_consumer(settings: Settings, on_commit: OnCommit | None = None) -> Consumer:
    """Return the consumer.

    Args:
        settings: the settings.
        on_commit: is told inside `poll` what became of asynchronous commits.

    Raises:
        ClusterError: a property is refused.

    """
    answered = {} if on_commit is None else {"on_commit": on_commit}
    return _made(Consumer, {**consumer_config(settings), **answered}, settings)


def make_producer(settings: Settings, limit: int = _DEFAULT_MESSAGE_BYTES) -> Producer:
    """Return the producer, for topics that take so many bytes at once.

    Raises:
        ClusterError: a property is refused.

    """
    return _made(Producer, producer_config(settings, limit), settings)


def try_properties(settings: Settings) -> None:
    """Refuse wrong properties, by name where one is wrong by itself.

    Raises:
        ClusterError: a property is refused.

    """
    given: dict[str, Mapping[str, str]] = {
        "kafka": settings.kafka,
        "kafka_consumer": settings.kafka_consumer,
        "kafka_producer": settings.kafka_producer,
    }
    makers: tuple[tuple[type[Consumer | Producer], dict[str, Any]], ...] = (
        (Consumer, consumer_config(settings)),
        (Producer, producer_config(settings)),
    )
    for client, config in makers:
        refusal = _refusal(client, config)
        if refusal is None:
            continue
        said = _masked(refusal, settings)
        for setting, properties in given.items():
            for name, value in properties.items():
                if _refusal(client, {"group.id": settings.group, name: value}) == refusal:
                    # Nobody knows whether a property that does not exist was to hold a secret.
                    secret = is_secret(name) or refusal.startswith("No such")
                    shown = MASK if secret else mask_user_info(repr(value))
                    raise ClusterError(f"{setting}.{name} is {shown}: librdkafka says: {said}")
        raise ClusterError(f"librdkafka refuses the settings: {said}")


def _check_topics(metadata: ClusterMetadata, topics: Iterable[tuple[str, str]]) -> None:
    """Refuse topics that cannot be used, all at once, each with the setting that names it."""
    refusals = []
    for setting, topic in topics:
        found = metadata.topics.get(topic)
        if found is None:
            reason = "does not exist, or this client may not see it"
            refusals.append(f"{setting}: topic {topic!r} {reason}")
        elif found.error is not None:
            refusals.append(f"{setting}: topic {topic!r}: {found.error.str()}")
    if refusals:
        raise ClusterError("\n".join(refusals))


def _shared(settings: Settings) -> dict[str, Any]:
    return {
        **_SHARED,
        "bootstrap.servers": settings.bootstrap_servers,
        "logger": librdkafka_logger(),
    }


def _refusal(client: type[Consumer | Producer], config: dict[str, Any]) -> str | None:
    try:
        client({**config, "logger": _SILENT}).close()
    except (KafkaException, ValueError, TypeError) as error:
        return _text(error).strip()
    return None


def _made(client: type[Client], config: dict[str, Any], settings: Settings) -> Client:
    try:
        return client(config)
    except (KafkaException, ValueError, TypeError) as error:
        reason = _masked(_text(error), settings)
        # A traceback would show the cause, which is not masked.
        raise ClusterError(f"librdkafka refuses the settings: {reason}") from None


_SHORTEST_SECRET: Final = 4  # A shorter one would mask parts of every other word.


def _masked(text: str, settings: Settings) -> str:
    """Mask the secrets of the settings in a text of librdkafka, which may quote part of one."""
    secrets: set[str] = set()
    for properties in (settings.kafka, settings.kafka_consumer, settings.kafka_producer):
        for name, value in properties.items():
            if is_secret(name):
                secrets |= {value, value.strip(), *re.split(r"[\s=,]+", value)}
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    return mask_user_info(text)


def _text(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return cause.str() if isinstance(cause, KafkaError) else str(error)
