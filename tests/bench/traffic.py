"""Events as fleets log them: streams interleaved, whole streams, whole responses, and bad ones."""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final

from confluent_kafka import Producer

from tests.bench.core import json_body, stream_body

STREAMS: Final = 500
STREAM_LENGTH: Final = 60
BEGIN_MS: Final = 1_767_225_600_000
MAX_BYTES: Final = 4 << 20  # Of a message.
_ROUND: Final = STREAMS * STREAM_LENGTH
_ONE_BAD_IN: Final = 100
_AROUND_TEXT: Final = 600  # Bytes of a whole response in its event.
_TEMPLATES: Final = 20  # Large bodies differ in their ids alone.
_NAME: Final = "NAME"  # This and the next two are replaced in a pattern.
_SEQUENCE: Final = 10_101
_TIME: Final = 20_202

Pairs = Iterator[tuple[str, bytes]]


@dataclass(frozen=True)
class Case:
    """A kind of traffic.

    Attributes:
        name: by which it is chosen.
        title: for the table.
        events: how many good ones, at scale 1.
        make: returns so many events, as pairs of key and value, and perhaps bad ones beside them.
        records: how many records come of so many events.
        step: of which their number is a multiple, for all streams to be whole.
        native: whether the values are native events, so that a bare loop can decode them.
        bad: whether some are not.

    """

    name: str
    title: str
    events: int
    make: Callable[[int], Pairs]
    records: Callable[[int], int]
    step: int = 1
    native: bool = True
    bad: bool = False

    def count(self, scale: float) -> int:
        """Return how many events there are at a scale."""
        return max(1, round(self.events * scale / self.step)) * self.step


@dataclass(frozen=True)
class Written:
    """What has been written to a topic."""

    events: int
    size: int


def chunks(events: int) -> Pairs:
    """Return so many events as pairs of request id and value."""
    made = 0
    while made < events:
        names = [f"req-{uuid.uuid4()}" for _ in range(STREAMS)]
        for sequence in range(STREAM_LENGTH):
            for name in names:
                if made == events:
                    return
                yield name, chunk(name, sequence)
                made += 1


def chunk(
    name: str, sequence: int, *, last: bool | None = None, timestamp: int | None = None
) -> bytes:
    """Return one event of a stream; if nothing else is said, the last sequence ends it."""
    last = sequence == STREAM_LENGTH - 1 if last is None else last
    body: dict[str, object] = {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion.chunk",
        "created": BEGIN_MS // 1000,
        "model": "Qwen3-32B",
        "system_fingerprint": "fp_0123456789abcdef",
    }
    if last:
        body["choices"] = []
        body["usage"] = {"prompt_tokens": 11, "completion_tokens": 24, "total_tokens": 35}
        body["metrics"] = {
            "speculative_decoding": {
                "mean_acceptance_length": 2.875,
                "draft_acceptance_rate": 0.625,
                "acceptance_histogram": [2, 1, 1, 4],
                "num_spec_steps": 8,
                "num_accepted_draft_tokens": 15,
                "num_draft_tokens": 24,
                "num_spec_tokens": 3,
            }
        }
    else:
        body["choices"] = [
            {
                "index": 0,
                "delta": {"content": "four or five words here "},
                "logprobs": None,
                "finish_reason": None,
                "stop_reason": None,
            }
        ]
        body["usage"] = None
    event = {
        "request_id": name,
        "sequence": sequence,
        "timestamp": BEGIN_MS + sequence * 20 if timestamp is None else timestamp,
        "body": body,
        "final": last,
    }
    return json.dumps(event, separators=(",", ":")).encode()


class Pattern:
    """Writes chunks ten times as fast as `chunk`, for what has to keep up a rate."""

    def __init__(self, *, last: bool) -> None:
        text = chunk(_NAME, _SEQUENCE, last=last, timestamp=_TIME).replace(b"%", b"%%")
        for mark, field in ((_NAME, b"%(n)b"), (_SEQUENCE, b"%(s)d"), (_TIME, b"%(t)d")):
            text = text.replace(str(mark).encode(), field)
        self._text = text

    def value(self, name: bytes, sequence: int, timestamp: int) -> bytes:
        return self._text % {b"n": name, b"s": sequence, b"t": timestamp}


MIDDLE: Final = Pattern(last=False)
LAST: Final = Pattern(last=True)


def steady(streams: int, clock: Callable[[], int]) -> Iterator[tuple[bytes, bytes, int, bool]]:
    """Return events without end, of so many streams that are all at different places.

    Args:
        streams: how many are open at a time.
        clock: milliseconds since 1970; asked for each event.

    Returns:
        Request ids, values, timestamps, and whether a stream ends with the event.

    """
    # Those of the first round are of all lengths, so that ends come one at a time from then on.
    left = [2 + number % (STREAM_LENGTH - 1) for number in range(streams)]
    lengths = left.copy()
    names = [_new_name() for _ in range(streams)]
    while True:
        for number, name in enumerate(names):
            now, ends = clock(), left[number] == 1
            value = (LAST if ends else MIDDLE).value(name, lengths[number] - left[number], now)
            yield name, value, now, ends
            left[number] -= 1
            if ends:
                left[number] = lengths[number] = STREAM_LENGTH
                names[number] = _new_name()


def long_stream(events: int, name: bytes = b"req-long") -> Iterator[bytes]:
    """Return the values of one stream of so many chunks."""
    for sequence in range(events):
        pattern = LAST if sequence == events - 1 else MIDDLE
        yield pattern.value(name, sequence, BEGIN_MS + sequence)


def _new_name() -> bytes:
    return f"req-{uuid.uuid4()}".encode()


def _sse(size: int, *, native: bool = False) -> Callable[[int], Pairs]:
    """Return whole streams of about a size, as they were sent or in native events."""

    def make(events: int) -> Pairs:
        bodies = [stream_body(size) for _ in range(min(events, _TEMPLATES))]
        olds = [body.split(b'"chatcmpl-', 1)[1].split(b'"', 1)[0] for body in bodies]
        if native:
            bodies = [
                _native(old.decode(), body.decode()) for old, body in zip(olds, bodies, strict=True)
            ]
        for body, old in islice(cycle(zip(bodies, olds, strict=True)), events):
            name = _new_name()
            yield name.decode(), body.replace(old, name)

    return make


def _json(size: int) -> Callable[[int], Pairs]:
    """Return whole responses of about a size, in native events."""

    def make(events: int) -> Pairs:
        body = json.loads(json_body(size - _AROUND_TEXT))
        body["id"] = f"chatcmpl-{_NAME}"
        text = _native(_NAME, body)
        for _ in range(events):
            name = _new_name()
            yield name.decode(), text.replace(_NAME.encode(), name)

    return make


def _native(name: str, body: object) -> bytes:
    event = {"request_id": name, "timestamp": BEGIN_MS, "body": body, "final": True}
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def _some_bad(events: int) -> Pairs:
    """Return so many good chunks and, in between, bad ones: one in a hundred of all is cut off."""
    for number, (name, value) in enumerate(chunks(events), 1):
        yield name, value
        if not number % (_ONE_BAD_IN - 1):
            yield name, value[: len(value) // 2]


def _all_bad(events: int) -> Pairs:
    return ((name, value[: len(value) // 2]) for name, value in chunks(events))


def _of_streams(events: int) -> int:
    return events // STREAM_LENGTH


CASES: Final = {
    case.name: case
    for case in (
        Case("chunks", "chunk events", 600_000, chunks, _of_streams, step=_ROUND),
        Case("sse64k", "whole SSE, 64 KiB", 10_000, _sse(1 << 16), int, native=False),
        Case(
            "sse64k_native",
            "whole SSE, 64 KiB, in native events",
            5_000,
            _sse(1 << 16, native=True),
            int,
        ),
        Case("sse1m", "whole SSE, 1 MiB", 600, _sse(1 << 20), int, native=False),
        # In a native event it is a segment, and those may have max_segment_bytes.
        Case(
            "sse1m_native",
            "whole SSE, 1 MB, in native events",
            200,
            _sse(1_000_000, native=True),
            int,
        ),
        Case("json1k", "JSON, 1 KiB", 100_000, _json(1 << 10), int),
        Case("json16k", "JSON, 16 KiB", 40_000, _json(1 << 14), int),
        Case("bad1", "chunks, 1 % bad", 600_000, _some_bad, _of_streams, step=_ROUND, bad=True),
        Case("bad100", "all bad", 100_000, _all_bad, lambda _: 0, bad=True),
    )
}


def fill(bootstrap: str, topic: str, events: int, *, per_second: float = 0.0) -> int:
    """Write so many chunk events, and return their bytes.

    Args:
        bootstrap: the cluster.
        topic: where to.
        events: how many.
        per_second: their rate by their Kafka timestamps; 0 stamps them with the time of writing.

    """
    return write(bootstrap, topic, chunks(events), per_second=per_second).size


def write(
    bootstrap: str,
    topic: str,
    pairs: Iterable[tuple[str, bytes]],
    *,
    per_second: float = 0.0,
    before_commit: Callable[[], object] | None = None,
) -> Written:
    """Write events.

    Args:
        bootstrap: the cluster.
        topic: where to.
        pairs: keys and values.
        per_second: their rate by their Kafka timestamps; 0 stamps them with the time of writing.
        before_commit: if given, all is one transaction, and this is called before its end: then
            everything becomes readable at once.

    """
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 20,
        "log_level": 3,
        "compression.type": "lz4",
        "message.max.bytes": MAX_BYTES,
    }
    if before_commit is not None:
        config |= {"transactional.id": f"bench-{uuid.uuid4()}", "transaction.timeout.ms": 900_000}
    producer = Producer(config)
    if before_commit is not None:
        producer.init_transactions()
        producer.begin_transaction()
    count = size = 0
    for number, (key, value) in enumerate(pairs):
        stamp = BEGIN_MS + int(number / per_second * 1000) if per_second else 0
        while True:
            try:
                producer.produce(topic, value, key, timestamp=stamp)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        count, size = count + 1, size + len(value)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    if before_commit is not None:
        before_commit()
        producer.commit_transaction()
    return Written(count, size)
