"""The bare loop of `make bench` in a separate process: it consumes and counts."""

import sys

from confluent_kafka import Consumer, TopicPartition

from consumer.kafka.client_config import consumer_config
from consumer.settings.settings import Settings
from tests.bench.peers.job import BEGUN

ENDED = "bare loop ended"


def main() -> None:
    bootstrap, topic, partitions, events, group = sys.argv[1:]
    settings = Settings(bootstrap_servers=bootstrap, topics=(topic,), group=group)
    config = {**consumer_config(settings), "auto.offset.reset": "earliest"}
    config.pop("logger")
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(int(partitions))])
    assert consumer.poll(10) is not None
    print(BEGUN, file=sys.stderr, flush=True)
    left = int(events) - 1
    while left > 0:
        left -= sum(1 for message in consumer.consume(5000, 1) if message.value() is not None)
    print(ENDED, file=sys.stderr, flush=True)
    sys.stdin.read()  # Until the measurement ends.
    consumer.close()


if __name__ == "__main__":
    main()
