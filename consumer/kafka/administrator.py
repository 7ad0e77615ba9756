"""Inspecting the cluster and its topics with the admin client."""

from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.admin._resource import ResourceType
from msgspec import Struct

from consumer.core.redaction import mask_user_info
from consumer.kafka.client_config import DEFAULT_MESSAGE_BYTES, mask_secrets, producer_config
from consumer.kafka.clients import make_admin_client
from consumer.kafka.errors import ClusterError, NoBrokerError, cause_of
from consumer.settings.settings import Settings

_TIMEOUT_S: Final = 10.0
_AUTHENTICATION: Final = KafkaError._AUTHENTICATION  # noqa: SLF001 - the client's public constant.
_EMBEDDED_PREFIX: Final = "mockCluster"  # Of the cluster id of librdkafka's mock cluster.


class Cluster(Struct, frozen=True):
    """The cluster as it was at the start.

    Attributes:
        cluster_id: id of the cluster.
        describes_topics: whether the cluster answers requests about topics; the embedded broker
            lets them time out.
        record_limit: maximum bytes of a message on the output topic.
        letter_limit: maximum bytes of a message on the dead-letter topic.
        partitions: number of partitions of each topic.

    """

    cluster_id: str
    describes_topics: bool
    record_limit: int
    letter_limit: int
    partitions: dict[str, int]


class TopicNamesAsIds:
    """Give the names of topics as their ids, where the cluster does not describe topics."""

    def describe_topics(self, topics: Iterable[str]) -> Mapping[str, Future[Any]]:
        """Describe topics, see `TopicIds`."""
        answers: dict[str, Future[Any]] = {}
        for topic in topics:
            answers[topic] = Future()
            answers[topic].set_result(_NamedTopic(topic))
        return answers


class _NamedTopic(Struct, frozen=True):
    topic_id: str


class Administrator:
    """The admin client and its last error.

    Args:
        settings: the settings.

    Raises:
        ClusterError: librdkafka rejects a property.

    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._errors: deque[KafkaError] = deque(maxlen=1)
        self.client = make_admin_client(settings, self._errors.append)

    def inspect(self, timeout_s: float) -> Cluster:
        """Inspect the cluster and the topics before anything is read.

        Raises:
            NoBrokerError: no broker answers within the timeout.
            ClusterError: a topic is missing or this service may not describe it.

        """
        settings = self._settings
        metadata = self.metadata(timeout_s)
        outputs = [settings.output_topic]
        used = [("topics", topic) for topic in settings.topics if not topic.startswith("^")]
        used.append(("output_topic", settings.output_topic))
        if settings.dead_letters != "off":
            outputs.append(settings.dead_letter_topic)
            used.append(("dead_letter_topic", settings.dead_letter_topic))
        _check_topics(metadata, used)
        limit = int(producer_config(settings).get("message.max.bytes", DEFAULT_MESSAGE_BYTES))
        cluster_id = str(metadata.cluster_id)
        describes_topics = not cluster_id.startswith(_EMBEDDED_PREFIX)
        if not describes_topics and settings.transactional:
            raise ClusterError(
                "delivery: the embedded broker has no transactions; set delivery to at_least_once"
            )
        limits = self._message_limits(outputs if describes_topics else (), limit)
        return Cluster(
            cluster_id,
            describes_topics,
            limits.get(settings.output_topic, limit),
            limits.get(settings.dead_letter_topic, limit),
            {name: len(topic.partitions) for name, topic in metadata.topics.items()},
        )

    def is_reachable(self, timeout_s: float) -> bool:
        """Return whether a broker answers and knows a broker: just after its start it may not."""
        try:
            found = self.client.list_topics(self._settings.output_topic, timeout=timeout_s)
        except KafkaException:
            return False
        return bool(found.brokers)

    def describe_topics(self, topics: Iterable[str]) -> Mapping[str, Future[Any]]:
        """Describe topics, see `TopicIds`."""
        names = TopicCollection(sorted(set(topics)))
        return self.client.describe_topics(names, request_timeout=_TIMEOUT_S)

    def metadata(self, timeout_s: float) -> ClusterMetadata:
        """Return the cluster's brokers and topics.

        Raises:
            NoBrokerError: no broker answers within the timeout.
            ClusterError: the brokers reject this client's credentials.

        """
        try:
            return self.client.list_topics(timeout=timeout_s)
        except KafkaException as error:
            self.client.poll(0)  # Runs the callback with the client's error.
            detail = f" ({self._errors[0].str()})" if self._errors else ""
            servers = mask_user_info(repr(self._settings.bootstrap_servers))
            reason = mask_secrets(f"{cause_of(error).str()}{detail}", self._settings)
            if self._errors and self._errors[0].code() == _AUTHENTICATION:
                raise ClusterError(
                    f"Authentication failed at {servers}: {reason}; check the security and SASL "
                    "properties in kafka"
                ) from error
            raise NoBrokerError(
                f"bootstrap_servers: no broker of {servers} answers: {reason}; check the address, "
                "the network and security.protocol"
            ) from error

    def _message_limits(self, topics: Iterable[str], limit: int) -> dict[str, int]:
        """Return the maximum message size of each topic, as far as this service may read it."""
        limits: dict[str, int] = {}
        for topic in topics:
            limits[topic] = limit
            resource = ConfigResource(ResourceType.TOPIC, topic)
            try:
                futures = self.client.describe_configs([resource], request_timeout=_TIMEOUT_S)
                config = futures[resource].result()
                limits[topic] = min(limit, int(config["max.message.bytes"].value))
            except (KafkaException, KeyError, TypeError, ValueError):
                continue  # Without the right to read configurations, the client's limit holds.
        return limits


def _check_topics(metadata: ClusterMetadata, topics: Iterable[tuple[str, str]]) -> None:
    """Reject unusable topics, all at once, each with the setting that names it."""
    rejections = []
    for setting, topic in topics:
        found = metadata.topics.get(topic)
        if found is None:
            rejections.append(
                f"{setting}: topic {topic!r} does not exist, or this service may not describe it; "
                "create the topic or allow Describe on it"
            )
        elif found.error is not None:
            rejections.append(f"{setting}: topic {topic!r}: {found.error.str()}")
    if rejections:
        raise ClusterError("\n".join(rejections))
