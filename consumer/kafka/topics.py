"""Creating the output topics."""

from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from consumer.kafka.administrator import Administrator
from consumer.kafka.errors import ClusterError, cause_of
from consumer.settings.settings import Settings

_TIMEOUT_S: Final = 30.0


def create_topics(settings: Settings, partitions: int, replication_factor: int) -> list[str]:
    """Create the output topics that do not exist, and return their names.

    Existing topics are not changed, whatever their number of partitions.

    Args:
        settings: the settings.
        partitions: number of partitions of the output topic; the dead-letter topic gets one.
        replication_factor: replicas of each partition; -1 for the brokers' default.

    Raises:
        ClusterError: no broker answers, a topic cannot be created, or a property is wrong.

    """
    wanted = {settings.output_topic: ("output_topic", partitions)}
    if settings.dead_letters != "off":
        wanted[settings.dead_letter_topic] = ("dead_letter_topic", 1)
    administrator = Administrator(settings)  # Lives as long as its requests.
    administrator.metadata(_TIMEOUT_S)  # Fails with a better reason than the request does.
    futures = administrator.client.create_topics(
        [NewTopic(name, number, replication_factor) for name, (_, number) in wanted.items()],
        request_timeout=_TIMEOUT_S,
    )
    created = []
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            cause = cause_of(error)
            if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            raise ClusterError(
                f"{wanted[name][0]}: topic {name!r} cannot be created: {cause.str()}"
            ) from error
        created.append(name)
    return created
