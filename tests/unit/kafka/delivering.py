"""Both kinds of delivery to a producer of the broker in memory."""

from typing import cast

import pytest
from confluent_kafka import KafkaException, Producer

from consumer.core.output_messages import OutputMessage
from consumer.kafka.at_least_once import AtLeastOnce
from consumer.kafka.batch import Batch, PartitionBatch
from consumer.kafka.delivery import Delivery, DeliveryResult
from consumer.kafka.exactly_once import ExactlyOnce
from consumer.kafka.sender import Sender
from consumer.telemetry.outcome_counts import OutcomeCounts
from tests.support.manual_clock import ManualClock
from tests.unit.kafka.fakes import FakeProducer, Log, Rejects, at, group_metadata

TIMEOUT_S = 15.0
GROUP = group_metadata(3)

both_deliveries = pytest.mark.parametrize("transactional", [False, True])


def batch_of(*outputs: OutputMessage) -> Batch:
    return Batch([PartitionBatch(at(7), list(outputs), OutcomeCounts())], GROUP)


class Delivering:
    """A delivery that has not been started."""

    def __init__(
        self,
        rejects: Rejects = lambda _message, _batch: None,
        *,
        transactional: bool = True,
        room: int = 1_000,
    ) -> None:
        self.clock, self.log = ManualClock(), Log()
        self.producer = FakeProducer(rejects, room=room)
        producer = cast("Producer", self.producer)
        topics = {"record": "records", "dead_letter": "dead"}
        self.sender = Sender(producer, topics, self.log, transactional=transactional)
        self.delivery: Delivery = AtLeastOnce(self.sender)
        if transactional:
            self.delivery = ExactlyOnce(
                producer, self.sender, "mine", TIMEOUT_S, GROUP, self.clock, self.log
            )
        self.dropped = 0

    def start(self) -> "Delivering":
        self.delivery.start()
        for recorded in (self.producer.calls, self.producer.chunks, self.producer.groups):
            recorded.clear()
        return self

    def fails(self, call: str, *errors: KafkaException) -> None:
        self.producer.failures[call] = list(errors)

    def deliver(self, *outputs: OutputMessage) -> DeliveryResult:
        """Deliver a batch once."""
        return self.delivery.deliver(batch_of(*outputs))

    def deliver_until_committed(self, *outputs: OutputMessage) -> int:
        """Deliver a batch as often as it is aborted; return the number of aborts."""
        result, aborts = self.deliver(*outputs), 0
        self.dropped += result.dropped
        while result.error is not None:
            assert self.producer.commits == [], "an aborted batch is not committed"
            aborts += 1
            assert aborts < 20, result.error
            result = self.delivery.deliver(result.batch)
            self.dropped += result.dropped
        return aborts

    @property
    def keys(self) -> list[bytes]:
        """Keys of the messages that a reader of committed ones sees."""
        return [message["key"] for message in self.producer.delivered]

    @property
    def committed(self) -> int | None:
        found = self.producer.stored.get(0)
        return None if found is None else found.offset
