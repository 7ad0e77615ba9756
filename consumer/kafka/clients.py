"""Making and closing the Kafka clients."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from consumer.core.redaction import MASK, is_secret, mask_user_info
from consumer.kafka.client_config import (
    DEFAULT_MESSAGE_BYTES,
    admin_config,
    consumer_config,
    mask_secrets,
    producer_config,
)
from consumer.kafka.errors import PropertyError
from consumer.settings.settings import Settings

ClientT = TypeVar("ClientT", Consumer, Producer, AdminClient)
OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]
OnStatistics = Callable[[str], None]

_SILENT: Final = logging.getLogger("consumer.kafka.clients.silent")
_SILENT.disabled = True
_GROUP_METADATA_PREFIX: Final = b"CGMDv2:"


def make_consumer(
    settings: Settings,
    on_commit: OnCommit | None = None,
    on_statistics: OnStatistics | None = None,
) -> Consumer:
    """Return a consumer.

    Args:
        settings: the settings.
        on_commit: `poll` calls it with the results of asynchronous commits.
        on_statistics: `poll` calls it with librdkafka's statistics as JSON.

    Raises:
        PropertyError: librdkafka rejects a property.

    """
    callbacks = _callbacks(on_commit=on_commit, stats_cb=on_statistics)
    return _made(Consumer, {**consumer_config(settings), **callbacks}, settings)


def make_producer(
    settings: Settings,
    max_batch_bytes: int = DEFAULT_MESSAGE_BYTES,
    on_statistics: OnStatistics | None = None,
) -> Producer:
    """Return a producer.

    Args:
        settings: the settings.
        max_batch_bytes: limit of the output topics.
        on_statistics: `poll` calls it with librdkafka's statistics as JSON.

    Raises:
        PropertyError: librdkafka rejects a property.

    """
    config = {**producer_config(settings, max_batch_bytes), **_callbacks(stats_cb=on_statistics)}
    return _made(Producer, config, settings)


def make_admin_client(settings: Settings, on_error: Callable[[KafkaError], None]) -> AdminClient:
    """Return an admin client that logs nothing.

    Raises:
        PropertyError: librdkafka rejects a property.

    """
    config = {**admin_config(settings), "error_cb": on_error, "logger": _SILENT}
    return _made(AdminClient, config, settings)


def check_properties(settings: Settings) -> None:
    """Reject wrong properties; name the property if it is wrong on its own.

    Raises:
        PropertyError: librdkafka rejects a property.

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
        rejection = _rejection(client, config)
        if rejection is None:
            continue
        reason = mask_secrets(rejection, settings)
        for setting, properties in given.items():
            for name, value in properties.items():
                if _rejection(client, {"group.id": settings.group, name: value}) == rejection:
                    if rejection.startswith("No such"):  # Only the name is wrong: hide the value.
                        raise PropertyError(f"{setting}.{name}: librdkafka rejects it: {reason}")
                    shown = MASK if is_secret(name) else mask_user_info(repr(value))
                    raise PropertyError(
                        f"{setting}.{name} is {shown}: librdkafka rejects it: {reason}"
                    )
        raise PropertyError(f"librdkafka rejects the settings together: {reason}")


def close_within(consumer: Consumer, timeout_s: float) -> None:
    """Close a consumer, but stop waiting for it after a timeout.

    Raises:
        KafkaException: the consumer cannot be closed.

    """
    failures: list[BaseException] = []

    def close() -> None:
        try:
            consumer.close()
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it again.
            failures.append(error)

    thread = threading.Thread(target=close, name="closing", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if failures:
        raise failures[0]


def is_member(group_metadata: bytes) -> bool:
    """Return whether a consumer's group metadata is that of a member.

    Brokers do not fence a transaction of the classic protocol whose generation is -1: they take it
    for one of a consumer without a group. A member that the group has expelled has this generation
    until it has joined again.

    Args:
        group_metadata: `CGMDv2:`, the generation as a little-endian 32-bit integer, and more.

    """
    start = len(_GROUP_METADATA_PREFIX)
    if not group_metadata.startswith(_GROUP_METADATA_PREFIX):
        raise ValueError(f"group metadata of an unknown format: {group_metadata!r}")
    return int.from_bytes(group_metadata[start : start + 4], "little", signed=True) >= 0


def _callbacks(**callbacks: Callable[..., None] | None) -> dict[str, Any]:
    """Return the callbacks that are given: librdkafka rejects None."""
    return {name: callback for name, callback in callbacks.items() if callback is not None}


def _rejection(client: type[Consumer | Producer], config: dict[str, Any]) -> str | None:
    """Return why librdkafka rejects a configuration; None if it does not."""
    try:
        _check_tls(config)
        client({**config, "logger": _SILENT}).close()
    except (KafkaException, ValueError, TypeError) as error:
        return _reason(error)
    return None


def _made(client: type[ClientT], config: dict[str, Any], settings: Settings) -> ClientT:
    try:
        _check_tls(config)
        return client(config)
    except (KafkaException, ValueError, TypeError) as error:
        reason = mask_secrets(_reason(error), settings)
        # A traceback would show the cause, which is not masked.
        raise PropertyError(f"librdkafka rejects the settings: {reason}") from None


def _check_tls(config: Mapping[str, Any]) -> None:
    """Raise for certificates that cannot be used, where librdkafka would abort the process."""
    if (
        str(config.get("sasl.oauthbearer.method")).lower() == "oidc"
        and str(config.get("security.protocol")).lower() == "sasl_ssl"
    ):
        # librdkafka 2.16 cannot undo what it has begun for OIDC before it reads certificates.
        tls = {name: value for name, value in config.items() if name.startswith("ssl.")}
        Consumer({"group.id": "tls", "security.protocol": "ssl", **tls, "logger": _SILENT}).close()


def _reason(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return (cause.str() if isinstance(cause, KafkaError) else str(error)).strip()
