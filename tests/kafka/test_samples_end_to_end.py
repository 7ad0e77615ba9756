"""Every kind of sample, and a simulated fleet, through the real service on a real Kafka.

What comes out is held against the published schemas, against the core on the same log, against
numbers written down here, against the fleet's own truth, and read with Kafka's own tools.
"""

import json
import re
import urllib.request
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from consumer.core.adapters.registry import load_adapters
from consumer.core.dead_letters import letter_of_message, letter_of_request, readable_headers
from consumer.core.message import CapturedMessage
from consumer.core.partition import Pipeline
from consumer.demo.fleet import CANARY, CREDENTIAL_CANARY, REQUESTS_PER_ROUND
from consumer.demo.totals import DemoTotals
from consumer.settings.core_options import pipeline_options
from consumer.settings.sources import load
from schemas import MessageOutcome, PublishedRecord, RequestOutcome
from tests.kafka.harness import SECONDS, Bench, Received, eventually
from tests.support.fleet_records import differences
from tests.unit.core import samples

pytestmark = pytest.mark.kafka

_CREDENTIALS: Final = [
    ("authorization", f"Bearer {CREDENTIAL_CANARY}".encode()),
    ("X-Api-Key", CREDENTIAL_CANARY.encode()),
    ("Cookie", f"session={CREDENTIAL_CANARY}".encode()),
]
_CONTENT: Final = re.compile(rb'"(?:content|text|reasoning_content|output_text)"\s*:\s*"')
_REFUSED: Final = (
    RequestOutcome.MALFORMED_STATS,
    RequestOutcome.UNRECOGNISED_STATS,
    RequestOutcome.AMBIGUOUS_STATS,
)

# Engine, accepted drafts, proposed drafts, verify steps: as a person reads them in the sample.
_NUMBERS: Final = {
    "engines/vllm/chat_nonstream_summary.json": ("vllm", 30, 60, 20),
    "engines/vllm/chat_stream_detailed_with_timing.sse": ("vllm", 30, 60, 20),
    "engines/sglang/generate_nonstream_v0_5_21_plus.json": ("sglang", 62, 200, 40),
    "engines/tensorrt_llm/chat_nonstream_pr19311.json": ("tensorrt_llm", 30, 60, 20),
    "fleet/sse/01_vllm_plain.sse": ("vllm", 15, 24, 8),
    "fleet/sse/02_sglang_sglext.sse": ("sglang", 15, 24, 8),
    "fleet/bodies/sse.zstd.bin": ("vllm", 15, 24, 8),
    "fleet/records/kserve_binary_response_sse.json": ("vllm", 15, 24, 8),
    "fleet/records/timestamp_far_future.json": ("vllm", 15, 24, 8),
    "fleet/chunks/native_out_of_order.jsonl": ("vllm", 15, 24, 8),
}


@pytest.fixture
def every_sample(make_bench: Callable[..., Bench]) -> Bench:
    """Return a bench with a partition for each sample, since they share their request ids."""
    names = samples.names()
    takes_any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    bench = make_bench(len(names), inputs=takes_any_time)
    for partition, name in enumerate(names):
        for message in samples.messages(name):
            value = message.value()
            bench.send(
                None if value is None else _CONTENT.sub(rb"\g<0>" + CANARY.encode(), value),
                message.key(),
                partition=partition,
                headers=[*(message.headers() or []), *_CREDENTIALS],
                timestamp=max(0, message.timestamp()[1]),
            )
    bench.flush()
    return bench


def test_every_sample_becomes_what_the_core_makes_of_it(every_sample: Bench) -> None:
    bench = every_sample
    log = _log(bench)
    assert any(CANARY.encode() in (message.value() or b"") for message in log)
    records, letters, totals = _expected(bench, log)
    assert len(records) > 40
    assert len(letters) >= 10

    service = bench.start(idle_timeout="2s", log_level="debug", http_address="127.0.0.1:0")
    finished = sum(number for name, number in totals.items() if name.startswith("request "))
    eventually(lambda: len(service.lines("request_finished")) == finished, "the last silence")
    address = service.wait_for("http_server_started")["address"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=SECONDS) as metrics:
        assert b"canary" not in metrics.read().lower()
    assert service.stop() == 0
    received = bench.records()
    assert [one.json for one in received] == records
    assert [_essence(one.json) for one in bench.letters()] == letters
    assert service.totals() == totals
    _nothing_leaks(bench, received, bench.letters())

    names = samples.names()
    numbers = {
        names[one.json["source_partition"]]: (
            one.json["engine"],
            one.json["num_accepted_draft_tokens"],
            one.json["num_draft_tokens"],
            one.json["num_spec_steps"],
        )
        for one in received
    }
    assert {name: numbers[name] for name in _NUMBERS} == _NUMBERS


def test_a_fleets_traffic_gives_its_truth_and_kafkas_own_tools_read_it(bench: Bench) -> None:
    totals, outcomes = DemoTotals(), []
    for message in bench.send_traffic(seed=7, rounds=2):
        totals.add_message(message)
        if message.expected is not None:
            outcomes.append(message.expected)
    service = bench.start(idle_timeout="5s")
    bench.records(lambda got: len(got) >= totals.missing + totals.not_due)
    bench.read_up()
    assert service.stop() == 0

    received = bench.records()
    records = [
        msgspec.json.decode(one.value, type=PublishedRecord)
        for one in received
        if not one.json["request_id"].startswith("sentinel-")
    ]
    assert differences(outcomes, records) == []
    assert len(records) > REQUESTS_PER_ROUND
    letters = bench.letters()
    assert Counter(one.json["reason"] for one in letters) == totals.expected_dead_letters
    _nothing_leaks(bench, received, letters)
    _is_well_described(bench, received)
    _console_consumer_reads_the_same(bench, received)
    _java_puts_keys_in_the_same_partitions(bench, received)
    _lag_tool_sees_no_lag(bench)


# What the core makes of a log


def _log(bench: Bench) -> list[CapturedMessage]:
    """Return the input topic as an independent consumer reads it."""
    consumer = Consumer({"bootstrap.servers": bench.bootstrap, "group.id": "log"})
    parts = [TopicPartition(bench.input, n, OFFSET_BEGINNING) for n in range(bench.partitions)]
    consumer.assign(parts)
    left = sum(bench.ends().values())
    messages = []
    while left:
        read = consumer.consume(left, timeout=SECONDS)
        assert read
        left -= len(read)
        messages += [
            CapturedMessage(
                at_topic=bench.input,
                at_partition=message.partition() or 0,
                at_offset=message.offset() or 0,
                the_key=message.key(),
                the_value=message.value(),
                the_headers=message.headers(),  # type: ignore[arg-type]
                timestamp_type=message.timestamp()[0],
                timestamp_ms=message.timestamp()[1],
            )
            for message in read
        ]
    consumer.close()
    return sorted(messages, key=lambda message: (message.partition(), message.offset()))


def _expected(
    bench: Bench, log: Iterable[CapturedMessage]
) -> tuple[list[Any], list[Any], dict[str, int]]:
    """Return records, dead letters and totals of a log behind which the partitions are silent."""
    settings = load({"idle_timeout": "2s"}, {}, None, require=())
    pipeline = Pipeline(pipeline_options(settings, "test"), load_adapters())
    partitions = [pipeline.partition(bench.input, n, 0) for n in range(bench.partitions)]
    records, letters = [], []
    totals: Counter[str] = Counter()
    for message in log:
        partition = partitions[message.partition()]
        result = partition.feed(message)
        totals[f"message {result.outcome}" + _in_brackets(result.reason)] += 1
        if result.outcome is MessageOutcome.BAD_PAYLOAD:
            reason = str(result.reason)
            headers = readable_headers(message, reason)
            letters.append(
                letter_of_message(
                    message, result.outcome, reason, result.detail, partition.origin, headers
                )
            )
    for partition in partitions:
        partition.close_silent()
        for ended in partition.drain():
            totals[f"request {ended.outcome}" + _in_brackets(ended.reason)] += 1
            if ended.record is not None:
                records.append(ended.record)
            elif ended.outcome in _REFUSED:
                letters.append(letter_of_request(ended, partition.origin))
    by_place = sorted(
        map(msgspec.to_builtins, letters),
        key=lambda one: (
            one["source_partition"],
            one["source_first_offset"],
            one["source_index"] or 0,
        ),
    )
    return (
        [json.loads(msgspec.json.encode(record)) for record in records],
        [_essence(json.loads(json.dumps(letter))) for letter in by_place],
        dict(totals),
    )


def _in_brackets(reason: object) -> str:
    return f"({reason})" if reason else ""


def _essence(letter: dict[str, Any]) -> dict[str, Any]:
    """Return a dead letter without what the service leaves out of a flood."""
    return letter | {"value_base64": None, "truncated": None}


# What leaves the service


def _nothing_leaks(bench: Bench, records: list[Received], letters: list[Received]) -> None:
    logged = bench.everything_logged()
    assert "canary" not in logged.lower()
    for record in records:
        everything = record.value + (record.key or b"") + repr(record.headers).encode()
        assert b"canary" not in everything.lower()
    for letter in letters:
        headers = [b64decode(value or "") for _, value in letter.json["headers"] or []]
        shown = letter.value + repr(letter.headers).encode() + b" ".join(headers)
        assert b"canary" not in shown.lower()
        assert CREDENTIAL_CANARY.encode() not in b64decode(letter.json["value_base64"] or "")


def _is_well_described(bench: Bench, records: list[Received]) -> None:
    for one in records:
        record = one.json
        assert one.key == record["request_id"].encode()
        assert one.headers["content-type"] == b"application/json"
        assert one.headers["schema-version"] == str(record["schema_version"]).encode()
        assert one.headers["ce_id"] == record["record_id"].encode()
        assert (record["fleet"], record["source_topic"]) == ("test", bench.input)
        if record["completed_at"] is not None:
            assert one.headers["ce_time"] == record["completed_at"].encode()
            milliseconds = f"{one.timestamp / 1000 % 60:06.3f}Z"
            assert record["completed_at"].endswith(milliseconds)


def _console_consumer_reads_the_same(bench: Bench, records: list[Received]) -> None:
    read = bench.kafka.console(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bench.bootstrap, "--topic", bench.output, "--from-beginning"),
        *("--formatter-property", "print.key=true", "--max-messages", str(len(records))),
    )
    assert read.returncode == 0, read.stderr
    lines = sorted(read.stdout.splitlines())
    assert lines == sorted((one.key or b"") + b"\t" + one.value for one in records)


def _java_puts_keys_in_the_same_partitions(bench: Bench, records: list[Received]) -> None:
    """Subscribers join records with topics that Java clients write, partition by partition."""
    topic = f"java-{bench.name}"
    bench.kafka.create_topic(topic, 3)
    keys = {one.key or b"": one.partition for one in records}
    written = bench.kafka.console(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", bench.bootstrap, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=|"),
        input=b"".join(key + b"|x\n" for key in keys),
    )
    assert written.returncode == 0, written.stderr
    consumer = Consumer({"bootstrap.servers": bench.bootstrap, "group.id": "java"})
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(3)])
    read = consumer.consume(len(keys), timeout=SECONDS)
    consumer.close()
    assert {message.key(): message.partition() for message in read} == keys


def _lag_tool_sees_no_lag(bench: Bench) -> None:
    described = bench.kafka.console(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", bench.bootstrap, "--describe", "--group", bench.group),
    )
    header, *rows = [line.split() for line in described.stdout.decode().splitlines() if line]
    lag = header.index("LAG")
    assert [row[lag] for row in rows] == ["0"] * bench.partitions
