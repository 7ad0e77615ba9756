"""The embedded broker: librdkafka's mock cluster, inside this process, on loopback ports.

Fit for a demo and for quick tests only: it accepts transactions without isolating them, and each
partition keeps about 5 MB.
"""

import logging
import signal
from collections.abc import Iterable
from typing import Final, Self

from confluent_kafka import KafkaException, Producer

PARTITIONS: Final = 4
"""Partitions of every topic, fixed by the mock cluster."""

_TIMEOUT_S: Final = 10.0
QUIET: Final = logging.getLogger("consumer.demo.quiet")
"""A logger for clients that must not log to stderr."""

QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class EmbeddedBroker:
    """A Kafka cluster of one broker, for as long as the `with` block lasts."""

    def __init__(self) -> None:
        self._owner: Producer | None = None

    def __enter__(self) -> Self:
        # The cluster lives inside this client. Unlike the client's other threads, the cluster's
        # thread does not block signals, and the first signal ends it.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._owner = Producer({"test.mock.num.brokers": 1}, logger=QUIET)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return self

    def __exit__(self, *_exception: object) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.close()

    @property
    def bootstrap_servers(self) -> str:
        """The address of the broker, for `bootstrap.servers` of any client."""
        [broker] = self._running().list_topics(timeout=_TIMEOUT_S).brokers.values()
        return f"{broker.host}:{broker.port}"

    def create_topics(self, names: Iterable[str]) -> None:
        """Create the topics, so that consumers find them before the first message.

        The mock cluster rejects the request of an admin client, but creates a topic on a producer's
        request for metadata.
        """
        for name in names:
            error = self._running().list_topics(name, timeout=_TIMEOUT_S).topics[name].error
            if error is not None:
                raise KafkaException(error)

    def _running(self) -> Producer:
        if self._owner is None:
            raise RuntimeError("the embedded broker runs only inside its with block")
        return self._owner
