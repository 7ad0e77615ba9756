"""The Kafka clients and what is asked of the cluster before the service starts."""

import logging
import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
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

from consumer.core.redaction import MASK, is_secret, mask_user_info
from consumer.kafka.errors import ClusterError, NoBrokerError
from consumer.settings.settings import Settings
from consumer.telemetry.logging_setup import librdkafka_logger

ClientT = TypeVar("ClientT", Consumer, Producer, AdminClient)
OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]
OnStatistics = Callable[[str], None]

_TIMEOUT_S: Final = 10.0
_SILENT: Final = logging.getLogger("consumer.kafka.clients.silent")
_SILENT.disabled = True
_AUTHENTICATION: Final = KafkaError._AUTHENTICATION  # noqa: SLF001 - the client's public constant.
_EMBEDDED: Final = "mockCluster"  # How librdkafka's mock cluster begins its id.
_DEFAULT_MESSAGE_BYTES: Final = 1_000_000  # Of librdkafka: message.max.bytes and batch.size.

_SHARED: Final[Mapping[str, Any]] = {"client.id": "acceptance-consumer"}
_STATISTICS_MS: Final = 3_000  # By which probes notice that no broker answers.
_CONSUMER: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Jumping over unread data or publishing a topic again is for a person to decide, not a default.
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "cooperative-sticky",
    "fetch.queue.backoff.ms": 20,
    "statistics.interval.ms": _STATISTICS_MS,
    "fetch.wait.max.ms": 100,
    "topic.metadata.refresh.interval.ms": 30_000,  # By which new partitions are noticed.
}
_PRODUCER: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",  # As the Java clients, so that keys meet those of other tools.
    "compression.type": "lz4",
    "linger.ms": 5,
    "delivery.report.only.error": True,
    "statistics.interval.ms": _STATISTICS_MS,
    "retry.backoff.ms": 20,
}
_NOT_TRANSACTIONAL: Final[Mapping[str, Any]] = {
    "message.timeout.ms": 0,  # A record waits for its broker as long as it takes.
}
# Below the session timeout: else a partition of a killed member waits for its last transaction.
_TRANSACTION_TIMEOUT_MS: Final = 15_000
_MAX_SOCKET_TIMEOUT_MS: Final = 300_000  # Of librdkafka.
_DEFAULT_MAX_POLL_INTERVAL_MS: Final = 300_000  # Of librdkafka.
_DEFAULT_SESSION_TIMEOUT_MS: Final = 45_000  # Of librdkafka.
_GROUP_METADATA: Final = b"CGMDv2:"
_NOT_OF_NEW_PROTOCOL: Final = (
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
)


class Cluster(Struct, frozen=True):
    """What the cluster says of itself at the start.

    Attributes:
        cluster_id: id of the cluster.
        answers_admin: whether questions about topics are answered; the embedded broker lets them
            time out.
        record_limit: most bytes of a message that the output topic takes.
        letter_limit: most bytes of a message that the dead-letter topic takes.
        partitions: how many partitions each topic has.

    """

    cluster_id: str
    answers_admin: bool
    record_limit: int
    letter_limit: int
    partitions: dict[str, int]


class NamesForIds:
    """Answers questions about topics with their names, where nobody can tell their ids."""

    def ask(self, topics: Iterable[str]) -> Mapping[str, Future[Any]]:
        """Ask for topics, see `TopicIds`."""
        answers: dict[str, Future[Any]] = {}
        for topic in topics:
            answers[topic] = Future()
            answers[topic].set_result(_NamedTopic(topic))
        return answers


class _NamedTopic(Struct, frozen=True):
    topic_id: str


class Administrator:
    """The admin client, and the last trouble that it had.

    Args:
        settings: the settings.

    Raises:
        ClusterError: a property is refused.

    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._troubles: deque[KafkaError] = deque(maxlen=1)
        config = {
            **_shared(settings),
            "reconnect.backoff.max.ms": 1000,  # It is asked whether a broker is back.
            **settings.kafka,
            "error_cb": self._troubles.append,
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
        metadata = self.metadata(timeout)
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
        if not answers_admin and settings.transactional:
            raise ClusterError(
                "delivery: the embedded broker has no transactions: use at_least_once"
            )
        limits = self._message_limits(outputs if answers_admin else (), limit)
        return Cluster(
            cluster_id,
            answers_admin,
            limits.get(settings.output_topic, limit),
            limits.get(settings.dead_letter_topic, limit),
            {name: len(topic.partitions) for name, topic in metadata.topics.items()},
        )

    def answers(self, timeout: float) -> bool:
        """Tell whether a broker answers that knows of one: who has just started may not yet."""
        try:
            found = self.client.list_topics(self._settings.output_topic, timeout=timeout)
        except KafkaException:
            return False
        return bool(found.brokers)

    def ask(self, topics: Iterable[str]) -> Mapping[str, Future[Any]]:
        """Ask for topics, see `TopicIds`."""
        names = TopicCollection(sorted(set(topics)))
        return self.client.describe_topics(names, request_timeout=_TIMEOUT_S)

    def metadata(self, timeout: float) -> ClusterMetadata:
        """Return what the cluster says of its brokers and topics.

        Raises:
            NoBrokerError: no broker answers within the timeout.
            ClusterError: the brokers refuse this client.

        """
        try:
            return self.client.list_topics(timeout=timeout)
        except KafkaException as error:
            self.client.poll(0)  # Hands over its troubles.
            trouble = f" ({self._troubles[0].str()})" if self._troubles else ""
            servers = mask_user_info(repr(self._settings.bootstrap_servers))
            reason = _masked(f"{_text(error)}{trouble}", self._settings)
            if self._troubles and self._troubles[0].code() == _AUTHENTICATION:
                raise ClusterError(f"the brokers of {servers} refuse us: {reason}") from error
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
    config = {
        **_shared(settings),
        **_PRODUCER,
        **(_transactional(settings) if settings.transactional else _NOT_TRANSACTIONAL),
        "batch.size": min(limit, _DEFAULT_MESSAGE_BYTES),
        **settings.kafka,
        **settings.kafka_producer,
    }
    if settings.transactional:
        # The client waits so long for a broker that is frozen, whatever a call says.
        timeout = min(int(config["transaction.timeout.ms"]), _MAX_SOCKET_TIMEOUT_MS)
        config.setdefault("socket.timeout.ms", timeout)
    return config


def transactional_id(settings: Settings) -> str:
    """Return the transactional id, which stays the same when this instance is started again."""
    return settings.transactional_id or f"{settings.group}-{socket.gethostname()}"


def transaction_timeout(settings: Settings) -> float:
    """Return the seconds after which brokers give up a transaction of this service."""
    return int(producer_config(settings)["transaction.timeout.ms"]) / 1000


def max_poll_interval(settings: Settings) -> float:
    """Return the seconds after which the group gives up on a member that does not poll."""
    config = consumer_config(settings)
    return int(config.get("max.poll.interval.ms", _DEFAULT_MAX_POLL_INTERVAL_MS)) / 1000


def session_timeout(settings: Settings) -> float:
    """Return the seconds after which the group gives up on a member that is not heard of."""
    config = consumer_config(settings)
    return int(config.get("session.timeout.ms", _DEFAULT_SESSION_TIMEOUT_MS)) / 1000


def is_static(settings: Settings) -> bool:
    """Tell whether this instance is a static member of its group."""
    return "group.instance.id" in consumer_config(settings)


def is_member(group: bytes) -> bool:
    """Tell whether a consumer's group metadata is that of a member.

    Brokers do not fence a transaction of the classic protocol whose generation is -1: they take it
    for one of a consumer without group. A member that the group has expelled has this generation
    until it has joined again.

    Args:
        group: `CGMDv2:`, the generation as a little-endian 32-bit integer, and more.

    """
    start = len(_GROUP_METADATA)
    if not group.startswith(_GROUP_METADATA):
        raise ValueError(f"group metadata of an unknown format: {group!r}")
    return int.from_bytes(group[start : start + 4], "little", signed=True) >= 0


def make_consumer(
    settings: Settings,
    on_commit: OnCommit | None = None,
    on_statistics: OnStatistics | None = None,
) -> Consumer:
    """Return the consumer.

    Args:
        settings: the settings.
        on_commit: is told inside `poll` what became of asynchronous commits.
        on_statistics: is told inside `poll` what librdkafka counts, in its JSON form.

    Raises:
        ClusterError: a property is refused.

    """
    answered = {} if on_commit is None else {"on_commit": on_commit}
    config = {**consumer_config(settings), **answered, **_told(on_statistics)}
    return _made(Consumer, config, settings)


def make_producer(
    settings: Settings,
    limit: int = _DEFAULT_MESSAGE_BYTES,
    on_statistics: OnStatistics | None = None,
) -> Producer:
    """Return the producer.

    Args:
        settings: the settings.
        limit: bytes that its topics take at once.
        on_statistics: is told inside `poll` what librdkafka counts.

    Raises:
        ClusterError: a property is refused.

    """
    config = {**producer_config(settings, limit), **_told(on_statistics)}
    return _made(Producer, config, settings)


def close_in_time(consumer: Consumer, seconds: float) -> None:
    """Close a consumer, but leave it to itself where that takes too long.

    Raises:
        KafkaException: it cannot be closed.

    """
    failures: list[BaseException] = []

    def close() -> None:
        try:
            consumer.close()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits.
            failures.append(error)

    thread = threading.Thread(target=close, name="closing", daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]


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
                    shown = f" is {MASK if is_secret(name) else mask_user_info(repr(value))}"
                    if refusal.startswith("No such"):
                        shown = ""  # It is the name that is wrong, and the value may be a secret.
                    raise ClusterError(f"{setting}.{name}{shown}: librdkafka says: {said}")
        raise ClusterError(f"librdkafka refuses the settings: {said}")


def _check_topics(metadata: ClusterMetadata, topics: Iterable[tuple[str, str]]) -> None:
    """Refuse topics that cannot be used, all at once, each with the setting that names it."""
    refusals = []
    for setting, topic in topics:
        found = metadata.topics.get(topic)
        if found is None:
            reason = "does not exist, or may not be described: create it, or allow Describe on it"
            refusals.append(f"{setting}: topic {topic!r} {reason}")
        elif found.error is not None:
            refusals.append(f"{setting}: topic {topic!r}: {found.error.str()}")
    if refusals:
        raise ClusterError("\n".join(refusals))


def _transactional(settings: Settings) -> dict[str, Any]:
    return {
        "transactional.id": transactional_id(settings),
        "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
        # When all brokers were away, a client that starts from its bootstrap servers again loses
        # the coordinator, and calls of a transaction wait for ever (librdkafka 2.16).
        "metadata.recovery.strategy": "none",
    }


def _shared(settings: Settings) -> dict[str, Any]:
    return {
        **_SHARED,
        "bootstrap.servers": settings.bootstrap_servers,
        "logger": librdkafka_logger(),
    }


def _told(on_statistics: OnStatistics | None) -> dict[str, Any]:
    return {} if on_statistics is None else {"stats_cb": on_statistics}


def _refusal(client: type[Consumer | Producer], config: dict[str, Any]) -> str | None:
    try:
        _try_tls(config)
        client({**config, "logger": _SILENT}).close()
    except (KafkaException, ValueError, TypeError) as error:
        return _text(error).strip()
    return None


def _made(client: type[ClientT], config: dict[str, Any], settings: Settings) -> ClientT:
    try:
        _try_tls(config)
        return client(config)
    except (KafkaException, ValueError, TypeError) as error:
        reason = _masked(_text(error), settings)
        # A traceback would show the cause, which is not masked.
        raise ClusterError(f"librdkafka refuses the settings: {reason}") from None


def _try_tls(config: Mapping[str, Any]) -> None:
    """Raise for certificates that cannot be used, where librdkafka would abort the process."""
    if (
        str(config.get("sasl.oauthbearer.method")).lower() == "oidc"
        and str(config.get("security.protocol")).lower() == "sasl_ssl"
    ):
        # librdkafka 2.16: what it has begun for OIDC by then, it cannot undo.
        tls = {name: value for name, value in config.items() if name.startswith("ssl.")}
        Consumer({"group.id": "tls", "security.protocol": "ssl", **tls, "logger": _SILENT}).close()


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
