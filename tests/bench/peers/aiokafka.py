"""The job in a plain loop on aiokafka, as an engineer with Kafka experience would write it.

It follows the documentation: `getmany`, a manual commit per batch, a rebalance listener, and
idempotent sends that are not awaited one by one. It commits the offset of the oldest open request,
so that a restart reads its first chunk again: at least once, with state.
"""

import asyncio
from asyncio import Future
from collections import defaultdict
from contextlib import suppress
from typing import Any

from aiokafka import (  # type: ignore[import-not-found]  # Installed in its own environment.
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    TopicPartition,
)
from aiokafka.errors import CommitFailedError  # type: ignore[import-not-found]  # As above.

from tests.bench.peers.job import Job, Open, arguments, decode

_BATCH = 5000
_FETCH_BYTES = 4 << 20  # Of one partition; lets a fetch fill a batch.
_COMMIT_S = 1.0


class Requests(ConsumerRebalanceListener):  # type: ignore[misc]  # Its base is not installed here.
    """The open requests of the partitions, and the offsets for a restart."""

    def __init__(self) -> None:
        self._job = Job()
        # Each with the offset of its first event, and in the order of those.
        self._open: defaultdict[TopicPartition, dict[str, tuple[int, Open]]] = defaultdict(dict)
        self._next: dict[TopicPartition, int] = {}

    def fold(
        self, partition: TopicPartition, messages: list[ConsumerRecord]
    ) -> list[tuple[bytes, bytes]]:
        """Return the keys and values of the records."""
        records = []
        requests = self._open[partition]
        for message in messages:
            event = decode(message.value)
            kept = requests.get(event.request_id)
            after, record = self._job.fold(None if kept is None else kept[1], event)
            if record is not None:
                records.append((message.key, record))
            if after is None:
                requests.pop(event.request_id, None)
            elif kept is None:
                requests[event.request_id] = message.offset, after
        self._next[partition] = messages[-1].offset + 1
        return records

    def offsets(self) -> dict[TopicPartition, int]:
        return {
            partition: next((first for first, _ in self._open[partition].values()), position)
            for partition, position in self._next.items()
        }

    async def on_partitions_revoked(self, _: set[TopicPartition]) -> None:
        self._forget()

    async def on_partitions_assigned(self, _: set[TopicPartition]) -> None:
        self._forget()

    def _forget(self) -> None:
        # Partitions that stay are re-read from their committed offsets, too.
        self._open.clear()
        self._next.clear()


async def main() -> None:
    given = arguments()
    if given.exactly_once:
        raise SystemExit("transactions alone would not make this loop's state exactly once")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=given.bootstrap,
        group_id=given.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_partition_fetch_bytes=_FETCH_BYTES,
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=given.bootstrap, enable_idempotence=True, linger_ms=5
    )
    requests = Requests()
    sent: list[Future[Any]] = []
    consumer.subscribe([given.source], listener=requests)
    async with producer, consumer:
        clock = asyncio.get_running_loop().time
        due = clock() + _COMMIT_S
        while True:
            batches = await consumer.getmany(timeout_ms=100, max_records=_BATCH)
            # No await between the folds, so that no rebalance can interrupt them.
            folded = [requests.fold(*batch) for batch in batches.items()]
            for key, record in (pair for pairs in folded for pair in pairs):
                sent.append(await producer.send(given.target, record, key))
            if clock() >= due:
                await asyncio.gather(*sent)
                sent.clear()
                if offsets := requests.offsets():
                    with suppress(CommitFailedError):  # After a rebalance, the events are re-read.
                        await consumer.commit(offsets)
                due = clock() + _COMMIT_S


if __name__ == "__main__":
    asyncio.run(main())
