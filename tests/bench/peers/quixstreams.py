"""The job in Quix Streams: a stateful `apply` on a StreamingDataFrame.

It follows the documentation: state in the state store with its changelog topic, because only that
survives a restart; and checkpoints at the default interval, for throughput. It decodes with
msgspec, because the built-in JSON decoder builds every object of a body, and writes the state only
on the first and the last event of a request.

With exactly-once, checkpoints are as far apart as the service's commits, because records wait for
them.
"""

from msgspec.json import Decoder, encode
from quixstreams import (  # type: ignore[import-not-found]  # Installed in its own environment.
    Application,
    State,
)

from tests.bench.peers.job import Job, Open, arguments, decode

_STATE = "open"


def main() -> None:
    given = arguments()
    app = Application(
        broker_address=given.bootstrap,
        consumer_group=given.group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once" if given.exactly_once else "at-least-once",
        commit_interval=1.0 if given.exactly_once else 5.0,
        consumer_extra_config={"fetch.queue.backoff.ms": 20},
        loglevel="WARNING",
    )
    source = app.topic(given.source, value_deserializer="bytes")
    target = app.topic(given.target, value_serializer="bytes")
    job = Job()
    decode_open = Decoder(Open).decode

    def apply(value: bytes, state: State) -> tuple[bytes, ...]:
        kept = state.get_bytes(_STATE)
        before = None if kept is None else decode_open(kept)
        after, record = job.fold(before, decode(value))
        if after is None:
            state.delete(_STATE)
        elif before is None:
            state.set_bytes(_STATE, encode(after))
        return () if record is None else (record,)

    app.dataframe(source).apply(apply, stateful=True, expand=True).to_topic(target)
    app.run()


if __name__ == "__main__":
    main()
