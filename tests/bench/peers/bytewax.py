"""The job in Bytewax: a keyed stream through `stateful_flat_map`.

It follows the documentation: one worker per process, because workers share the interpreter's lock;
larger batches than the default, for throughput; recovery, because without it a restart reads from
the oldest event, with as many recovery partitions as there can be workers; and snapshots at the
default interval. Bytewax stores offsets in its snapshots and uses no consumer group.
"""

from pathlib import Path

import bytewax.operators as op  # type: ignore[import-not-found]  # In its own environment.
from bytewax.connectors.kafka import (  # type: ignore[import-not-found]  # As above.
    KafkaSink,
    KafkaSinkMessage,
    KafkaSource,
    KafkaSourceMessage,
)
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]  # As above.
from bytewax.recovery import (  # type: ignore[import-not-found]  # As above.
    RecoveryConfig,
    init_db_dir,
)
from bytewax.run import cli_main  # type: ignore[import-not-found]  # As above.

from tests.bench.peers.job import Job, Open, arguments, decode

_BATCH = 5000
_RECOVERY = Path("recovery")


def main() -> None:
    given = arguments()
    if given.exactly_once:
        raise SystemExit("Bytewax writes to Kafka at least once")
    brokers = [given.bootstrap]
    config = {"fetch.queue.backoff.ms": "20"}
    job = Job()

    def keyed(message: KafkaSourceMessage) -> tuple[str, bytes]:
        return message.key.decode(), message.value

    def fold(request: Open | None, value: bytes) -> tuple[Open | None, tuple[bytes, ...]]:
        request, record = job.fold(request, decode(value))
        return request, () if record is None else (record,)

    def message(keyed_record: tuple[str, bytes]) -> KafkaSinkMessage:
        key, record = keyed_record
        return KafkaSinkMessage(key.encode(), record)

    flow = Dataflow("acceptance")
    source = KafkaSource(brokers, [given.source], add_config=config, batch_size=_BATCH)
    events = op.input("events", flow, source)
    records = op.stateful_flat_map("fold", op.map("key", events, keyed), fold)
    op.output("records", op.map("message", records, message), KafkaSink(brokers, given.target))

    if not _RECOVERY.is_dir():
        _RECOVERY.mkdir()
        init_db_dir(_RECOVERY, given.partitions)
    cli_main(flow, recovery_config=RecoveryConfig(_RECOVERY))


if __name__ == "__main__":
    main()
