"""Chunk events as a fleet logs them: streams interleaved, statistics in the last chunk."""

import json
import uuid
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Producer

STREAMS: Final = 500
STREAM_LENGTH: Final = 60
BEGIN_MS: Final = 1_767_225_600_000


def chunks(events: int) -> Iterator[tuple[str, bytes]]:
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


def chunk(name: str, sequence: int) -> bytes:
    """Return one event of a stream; the one of the last sequence ends it."""
    last = sequence == STREAM_LENGTH - 1
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
        "timestamp": BEGIN_MS + sequence * 20,
        "body": body,
        "final": last,
    }
    return json.dumps(event, separators=(",", ":")).encode()


def fill(bootstrap: str, topic: str, events: int, *, per_second: float = 0.0) -> int:
    """Write so many events, and return their bytes.

    Args:
        bootstrap: the cluster.
        topic: where to.
        events: how many.
        per_second: their rate by their Kafka timestamps; 0 stamps them with the time of writing.

    """
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"}
    )
    total = 0
    for number, (request_id, value) in enumerate(chunks(events)):
        stamp = BEGIN_MS + int(number / per_second * 1000) if per_second else 0
        while True:
            try:
                producer.produce(topic, value, request_id, timestamp=stamp)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        total += len(value)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return total
