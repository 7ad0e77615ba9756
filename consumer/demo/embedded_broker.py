"""The embedded broker: librdkafka's mock cluster, inside this process, on loopback ports.

Fit for a demo and for quick tests only: it accepts transactions without isolating them, and each
partition keeps about 5 MB.
"""

import logging
import signal
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException, Producer

PARTITIONS: Final = 4
"""Partitions of every topic, fixed by the mock cluster."""

_TIMEOUT_SECONDS: Final = 10.0
QUIET: Final = logging.getLogger("consumer.demo.quiet")
"""For clients whose log lines are of no interest: keeps them off stderr."""

QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class EmbeddedBroker:
    """A Kafka cluster for as long as the `with` block lasts.

    Args:
        brokers: number of brokers.
        logger: where librdkafka's log lines go; without one they are dropped.

    """

    def __init__(self, *, brokers: int = 1, logger: logging.Logger | None = None) -> None:
        self._brokers = brokers
        self._logger = logger or QUIET
        self._owner: Producer | None = None

    def __enter__(self) -> Self:
        # The cluster lives inside this client, and ends with it. Unlike the client's other threads,
        # that of the cluster does not block signals, and the first one that it gets ends it.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._owner = Producer({"test.mock.num.brokers": self._brokers}, logger=self._logger)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.poll(0)  # Hands the last log lines to the logger.
            owner.close()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers, for `bootstrap.servers` of any client."""
        brokers = self._running().list_topics(timeout=_TIMEOUT_SECONDS).brokers
        return ",".join(f"{broker.host}:{broker.port}" for broker in brokers.values())

    def create_topics(self, names: Iterable[str]) -> None:
        """Create the topics, so that consumers find them before the first message is produced.

        The mock cluster refuses an admin client's request and creates what a producer asks for.
        """
        for name in names:
            error = self._running().list_topics(name, timeout=_TIMEOUT_SECONDS).topics[name].error
            if error is not None:
                raise KafkaException(error)

    def _running(self) -> Producer:
        if self._owner is None:
            raise RuntimeError("the embedded broker runs only inside its with block")
        return self._owner
