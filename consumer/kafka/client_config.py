"""The librdkafka properties of the clients, and the timeouts that follow from them."""

import re
import socket
from collections.abc import Mapping
from typing import Any, Final

from consumer.core.redaction import MASK, is_secret, mask_user_info
from consumer.settings.settings import Settings
from consumer.telemetry.logging_setup import librdkafka_logger

DEFAULT_MESSAGE_BYTES: Final = 1_000_000  # librdkafka's message.max.bytes and batch.size.

_STATISTICS_MS: Final = 3_000  # Probes need them to notice that no broker is reachable.
_CONSUMER: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # An operator decides whether to skip unread data or to publish a topic again, not a default.
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "cooperative-sticky",
    "fetch.queue.backoff.ms": 20,
    "statistics.interval.ms": _STATISTICS_MS,
    "fetch.wait.max.ms": 100,
    "topic.metadata.refresh.interval.ms": 30_000,  # How soon new partitions are read.
}
_PRODUCER: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",  # As in Java clients, so that equal keys share a partition.
    "compression.type": "lz4",
    "linger.ms": 5,
    "delivery.report.only.error": True,
    "statistics.interval.ms": _STATISTICS_MS,
    "retry.backoff.ms": 20,
}
# Below the session timeout: else a partition of a killed member waits for its last transaction.
_TRANSACTION_TIMEOUT_MS: Final = 15_000
_MAX_SOCKET_TIMEOUT_MS: Final = 300_000  # librdkafka's maximum.
_DEFAULT_MAX_POLL_INTERVAL_MS: Final = 300_000  # librdkafka's.
_CALLBACK_SHARE: Final = 0.4  # Of max.poll.interval.ms.
_DEFAULT_SESSION_TIMEOUT_MS: Final = 45_000  # librdkafka's.
_NOT_IN_NEW_GROUP_PROTOCOL: Final = (
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
)
_MIN_SECRET_LENGTH: Final = 4  # Masking a shorter secret would mask parts of other words.


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
        for name in _NOT_IN_NEW_GROUP_PROTOCOL:
            config.pop(name, None)
    return config


def producer_config(
    settings: Settings, max_batch_bytes: int = DEFAULT_MESSAGE_BYTES
) -> dict[str, Any]:
    """Return the producer's librdkafka properties.

    Args:
        settings: the settings.
        max_batch_bytes: limit of the output topics. Brokers apply it to whole batches, and the
            client does not divide a rejected batch.

    """
    config = {
        **_shared(settings),
        **_PRODUCER,
        **_delivery(settings),
        "batch.size": min(max_batch_bytes, DEFAULT_MESSAGE_BYTES),
        **settings.kafka,
        **settings.kafka_producer,
    }
    if settings.transactional:
        # While a broker hangs, the client waits this long, whatever timeout a call passes.
        timeout_ms = min(int(config["transaction.timeout.ms"]), _MAX_SOCKET_TIMEOUT_MS)
        config.setdefault("socket.timeout.ms", timeout_ms)
    return config


def admin_config(settings: Settings) -> dict[str, Any]:
    """Return the admin client's librdkafka properties."""
    return {
        **_shared(settings),
        "reconnect.backoff.max.ms": 1000,  # The client finds out whether a broker is back.
        **settings.kafka,
    }


def transactional_id(settings: Settings) -> str:
    """Return the transactional id, which an instance keeps over restarts."""
    return settings.transactional_id or f"{settings.group}-{socket.gethostname()}"


def transaction_timeout_s(settings: Settings) -> float:
    """Return the seconds after which brokers abort a transaction of this service."""
    return int(producer_config(settings)["transaction.timeout.ms"]) / 1000


def max_poll_interval_s(settings: Settings) -> float:
    """Return the seconds after which the group expels a member that does not poll."""
    config = consumer_config(settings)
    return int(config.get("max.poll.interval.ms", _DEFAULT_MAX_POLL_INTERVAL_MS)) / 1000


def max_callback_s(settings: Settings) -> float:
    """Return the seconds for which a callback of the group may hold up the polling."""
    return max_poll_interval_s(settings) * _CALLBACK_SHARE


def session_timeout_s(settings: Settings) -> float:
    """Return the seconds after which the group expels a member without heartbeats."""
    config = consumer_config(settings)
    return int(config.get("session.timeout.ms", _DEFAULT_SESSION_TIMEOUT_MS)) / 1000


def is_static_member(settings: Settings) -> bool:
    """Return whether this instance is a static member of its group."""
    return "group.instance.id" in consumer_config(settings)


def mask_secrets(text: str, settings: Settings) -> str:
    """Mask the settings' secrets in a message of librdkafka, which may quote part of one."""
    secrets: set[str] = set()
    for properties in (settings.kafka, settings.kafka_consumer, settings.kafka_producer):
        for name, value in properties.items():
            if is_secret(name):
                secrets |= {value, value.strip(), *re.split(r"[\s=,]+", value)}
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_SECRET_LENGTH:
            text = text.replace(secret, MASK)
    return mask_user_info(text)


def _shared(settings: Settings) -> dict[str, Any]:
    return {
        "client.id": "acceptance-consumer",
        "bootstrap.servers": settings.bootstrap_servers,
        "logger": librdkafka_logger(),
    }


def _delivery(settings: Settings) -> dict[str, Any]:
    if not settings.transactional:
        return {"message.timeout.ms": 0}  # A record waits for its broker as long as it takes.
    return {
        "transactional.id": transactional_id(settings),
        "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
        # After an outage of all brokers, a client that rebootstraps loses the coordinator, and
        # transactional calls wait for ever (librdkafka 2.16).
        "metadata.recovery.strategy": "none",
    }
