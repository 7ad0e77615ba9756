"""Rules for the librdkafka properties that users may set."""

import re
from typing import Final

KAFKA_MAPS: Final = ("kafka", "kafka_consumer", "kafka_producer")
# Their own names end in `.file`, which otherwise means that a file holds the value.
FILE_PROPERTIES: Final = frozenset(
    {
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "sasl.oauthbearer.assertion.private.key.file",
    }
)
_OFFSETS: Final = "offsets are committed only together with the records before them"
_OWNED: Final = {
    "bootstrap.servers": "use the setting bootstrap_servers",
    "metadata.broker.list": "use the setting bootstrap_servers",
    "group.id": "use the setting group",
    "auto.offset.reset": "use the setting start",
    "enable.auto.commit": _OFFSETS,
    "auto.commit.enable": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "enable.partition.eof": "the service itself detects the end of a partition",
    "transactional.id": "use the setting transactional_id",
    "partitioner": "records need the partitioner of Java clients, so that subscribers can join "
    "them",
}
_TRUE: Final = ("true", "t", "1")
_ALL: Final = ("all", "-1")
_PINNED: Final = {
    "enable.idempotence": (_TRUE, "a retry would write a record twice"),
    "acks": (_ALL, "a broker that fails would lose records"),
    "request.required.acks": (_ALL, "a broker that fails would lose records"),
    "isolation.level": (("read_committed",), "aborted responses would be published"),
    "partition.assignment.strategy": (
        ("cooperative-sticky",),
        "otherwise a partition would lose its state because another one moves",
    ),
}
_BREAKS_JSON: Final = re.compile(r'["\\\x00-\x1f]')


def refusal(name: str, value: str) -> str | None:
    """Return why a property must not have a value; None if it may."""
    if name in _OWNED:
        return f"must not be set: {_OWNED[name]}"
    if name in _PINNED and value.lower() not in _PINNED[name][0]:
        values, reason = _PINNED[name]
        return f"must be {values[0]}: {reason}"
    if name == "client.id" and _BREAKS_JSON.search(value):
        return (
            "must not contain a quote, backslash or control character: librdkafka copies it "
            "unescaped into its statistics, which probes need"
        )
    return None


def split_client(setting: str, name: str) -> tuple[str, str]:
    """Return the setting and property for an entry: `kafka` may name one client by a prefix.

    No librdkafka property starts with `consumer.` or `producer.`.
    """
    client, dot, rest = name.partition(".")
    if setting == "kafka" and dot and client in ("consumer", "producer"):
        return f"kafka_{client}", rest
    return setting, name
