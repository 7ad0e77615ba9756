"""What Kafka's own console consumer prints of a topic, and what replay reads of that."""

from collections.abc import Callable
from pathlib import Path

import pytest

from consumer.commands.captures.files import read_capture
from consumer.core.message import CapturedMessage
from tests.kafka.harness import Bench
from tests.unit.core.made import chunk, last_chunk, native, sse, whole

pytestmark = pytest.mark.kafka

_STAMP = 1_796_068_800_000
_SENT = [
    CapturedMessage(
        at_offset=offset,
        the_key=key,
        the_value=value,
        the_headers=[*headers],
        timestamp_type=1,
        timestamp_ms=_STAMP + offset,
    )
    for offset, (key, value, headers) in enumerate(
        [
            (b"r1", native("r1", body=whole()), [("content-type", b"application/json")]),
            (None, sse(chunk(), last_chunk(), "[DONE]"), []),
            (b"k", b'{\n  "id": "c2",\n  "choices": []\n}', [("a", b"1"), ("b", b"2")]),
            (b"r1", None, []),
            (b"r2", native("r2", body=whole("c2")), []),
        ]
    )
]


def _parts(message: CapturedMessage, parts: tuple[str, ...]) -> tuple[object, ...]:
    """Return the value of a message, and those of its parts that the consumer prints."""
    value = message.the_value and message.the_value.rstrip()
    shown = {
        "timestamp": message.timestamp(),
        "partition": message.partition(),
        "offset": message.offset(),
        "headers": message.headers(),
        "key": message.key(),
    }
    return value, *(shown[part] for part in parts)


@pytest.mark.parametrize(
    "parts",
    [
        (),
        ("key",),
        ("headers",),
        ("headers", "key"),
        ("timestamp",),
        ("timestamp", "key"),
        ("timestamp", "partition", "offset", "headers", "key"),
    ],
)
def test_replay_reads_what_the_console_consumer_prints(
    make_bench: Callable[..., Bench], tmp_path: Path, parts: tuple[str, ...]
) -> None:
    bench = make_bench(partitions=1)
    for message in _SENT:
        bench.send(
            message.the_value,
            message.the_key,
            headers=message.the_headers,
            timestamp=message.timestamp_ms,
        )
    bench.flush()
    printed = bench.kafka.console(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bench.bootstrap, "--topic", bench.input),
        *("--from-beginning", "--max-messages", str(len(_SENT))),
        *(word for part in parts for word in ("--formatter-property", f"print.{part}=true")),
    )
    capture = tmp_path / "printed"
    capture.write_bytes(printed.stdout)

    read = read_capture(str(capture), "auto")

    assert [_parts(one, parts) for one in read] == [_parts(one, parts) for one in _SENT]
