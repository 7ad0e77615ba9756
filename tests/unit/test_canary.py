"""Payload text and credentials leave the service only where a setting asks for them.

One marker is in every content and prompt, and another in every header with a credential. Whole and
truncated messages in every envelope pass through the pipeline, the reporter and a delivery that
partly fails. The tests search every log line of level debug, every metric and every output.
"""

import io
import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Final, Literal, cast

import msgspec
import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from prometheus_client import generate_latest

from consumer.core.adapters.registry import load_adapters
from consumer.core.message import CapturedMessage, Headers
from consumer.core.output_messages import OutputMessage
from consumer.core.partition import Options, Partition, Pipeline
from consumer.kafka.at_least_once import AtLeastOnce
from consumer.kafka.batch import Batch, PartitionBatch
from consumer.kafka.sender import Sender
from consumer.telemetry.clock import SystemClock
from consumer.telemetry.health import Health
from consumer.telemetry.logging_setup import Level, configure, get_logger
from consumer.telemetry.metrics import Metrics
from consumer.telemetry.outcome_counts import OutcomeCounts, totals_by_name
from consumer.telemetry.outcome_reporter import OutcomeReporter
from consumer.telemetry.stop import Stop
from schemas import MessageOutcome, RequestOutcome
from tests.unit.core import samples
from tests.unit.core.made import (
    TRACE,
    Json,
    chunk,
    cloudevent,
    cloudevent_headers,
    encode,
    last_chunk,
    native,
    native_segment,
    sse,
    vllm_stats,
    whole,
)
from tests.unit.kafka.fakes import FakeProducer

CONTENT: Final = "canary-content-8e21"
CREDENTIAL: Final = "canary-credential-8e21"
_TEXT: Final = re.compile(
    rb'"(?:content|text|reasoning_content|output_text|prompt|input|delta)"\s*:\s*"'
)
_NAMES: Final = (
    *("Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "api-key"),
    *("x-auth-token", "X-Amz-Security-Token", "x-goog-api-key", "client_secret", "password"),
    *("ce_authorization", "X-Hub-Signature"),
)
CREDENTIALS: Final[Headers] = [(name, f"Bearer {CREDENTIAL}".encode()) for name in _NAMES]
_PATHS: Final = {"request_id": "meta.rid", "body": "payload", "sequence": "meta.n"}
_REQUEST: Final = {"prompt": CONTENT, "messages": [{"role": "user", "content": CONTENT}]}
_SECRETS: Final = {"headers": {"authorization": f"Bearer {CREDENTIAL}", "x-api-key": CREDENTIAL}}

Outputs = tuple[str, list[Json], dict[str, int]]  # Log, delivered messages, totals.


def _with_content(body: Json) -> Json:
    marked = _TEXT.sub(rb"\g<0>" + CONTENT.encode(), encode(body))
    assert CONTENT.encode() in marked
    return cast("Json", msgspec.json.decode(marked)) | _REQUEST


_CONTRADICTING: Final = {
    "speculative_decoding": vllm_stats()["speculative_decoding"] | {"num_spec_steps": 10_000}
}
WHOLE: Final = _with_content(whole())
CHUNKS: Final[list[Json | str]] = [_with_content(chunk()), last_chunk() | _REQUEST, "[DONE]"]
STREAM: Final = sse(*CHUNKS)
_EVENT: Final = cloudevent(data=WHOLE, authorization=CREDENTIAL, traceparent=TRACE) | _SECRETS

ENVELOPES: Final[dict[str, list[tuple[bytes, Headers]]]] = {
    "native": [(native("n", body=WHOLE, labels={"x-api-key": CREDENTIAL}, **_SECRETS), [])],
    "native chunks": [
        (native("c", sequence=number, body=body, **_SECRETS), [])
        for number, body in enumerate(CHUNKS)
    ],
    "native segments": [
        (native_segment(STREAM[at : at + 200], "s", sequence=at // 200), [])
        for at in range(0, len(STREAM), 200)
    ],
    "structured CloudEvent": [
        (encode(_EVENT), [("content-type", b"application/cloudevents+json")])
    ],
    "CloudEvent of a stream": [
        (encode(cloudevent(data_base64=b64encode(STREAM).decode(), id="e2")), [])
    ],
    "batch": [
        (encode([_EVENT | {"id": "b1"}, _EVENT | {"id": "b2"}, {"specversion": CONTENT}]), [])
    ],
    "binary CloudEvent": [
        (encode(WHOLE | _SECRETS), cloudevent_headers(id="e3", authorization=CREDENTIAL)),
    ],
    "body": [(encode(WHOLE | _SECRETS), [])],
    "server-sent events": [(STREAM, [])],
    "paths": [(encode({"meta": {"rid": "m"}, "payload": WHOLE, **_SECRETS}), [])],
    "refused numbers": [
        (native("x", body=WHOLE | {"metrics": {"speculative_decoding": {"a": CONTENT}}}), [])
    ],
    "contradicting numbers": [(native("y", body=WHOLE | {"metrics": _CONTRADICTING}), [])],
    "two engines' numbers": [
        (
            native(
                "z", body=WHOLE | {"meta_info": {"spec_verify_ct": 5, "spec_accept_histogram": []}}
            ),
            [],
        )
    ],
    "errors": [(native("f", status=500, body={"error": {"message": CONTENT}}), [])],
    "text": [(f"{CONTENT} api_key={CREDENTIAL}".encode(), [])],
    **{
        f"sample {name}": [
            (
                _TEXT.sub(rb"\g<0>" + CONTENT.encode(), one.value() or b""),
                list(one.headers() or []),
            )
            for one in samples.messages(name)
        ]
        for name in samples.names()
    },
}


class _Stream(io.TextIOWrapper):
    def __init__(self) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding="utf-8")


@pytest.fixture
def stream() -> Iterator[_Stream]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = _Stream()
    yield stream
    configure()
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


def _messages() -> Iterator[CapturedMessage]:
    """Return the messages: each envelope has its own topic, and another for truncated values."""
    for name, sent in ENVELOPES.items():
        for offset, (value, headers) in enumerate(sent):
            for kind, sent_value in (("whole", value), ("cut", value[: len(value) * 2 // 3])):
                yield CapturedMessage(
                    at_topic=f"{kind}-{re.sub('[^a-zA-Z0-9.-]', '-', name)}",
                    at_offset=offset,
                    the_key=b"key",
                    the_value=sent_value,
                    the_headers=[("traceparent", TRACE.encode()), *headers, *CREDENTIALS],
                )


def _run(
    stream: _Stream, level: Level, dead_letters: Literal["full", "reference"], preview: int = 0
) -> Outputs:
    configure("json", level, stream=stream, preview_bytes=preview)
    clock, log = SystemClock(), get_logger()
    reporter = OutcomeReporter(
        dead_letters=dead_letters,
        record_limit=1_000_000,
        letter_limit=1_000_000,
        log_payloads=preview > 0,
        clock=clock,
        log=log,
    )
    reporter._lines._max_admitted = 1_000_000  # Suppresses no line.
    topics = {"record": "records", "dead_letter": "letters"}
    producer = FakeProducer(lambda message, _: _TOO_LARGE if message["key"] == b"n" else None)
    sender = Sender(cast("Producer", producer), topics, log, transactional=False)
    delivery = AtLeastOnce(sender)
    core = Pipeline(Options(paths=_PATHS, label_attributes=("authorization",)), load_adapters())
    partitions = {one.topic(): core.partition(one.topic(), 0, 0) for one in _messages()}
    metrics = Metrics()
    Health(Stop(), 20.0, clock, log).register(metrics.registry)

    def deliver(partition: Partition, outputs: list[OutputMessage], counts: OutcomeCounts) -> None:
        for finished in partition.drain():
            counts.add_request(finished, metrics.labels_of(finished))
            outputs += reporter.report_request(finished, partition.origin)
        position = TopicPartition(partition.origin.topic, 0, partition.position)
        batch = Batch([PartitionBatch(position, outputs, counts)])
        delivery.deliver(batch)
        metrics.count_committed_batch(
            [(counts, outputs)], duration_s=0.0, committed_at_ms=clock.wall()
        )

    for message in _messages():
        partition = partitions[message.topic()]
        result = partition.feed(message)
        outputs = reporter.report_message(message, result, partition.origin)
        counts = OutcomeCounts()
        counts.totals["message", result.outcome, result.reason, (result.envelope,)] += 1
        deliver(partition, outputs, counts)
    for partition in partitions.values():
        partition.close_all()
        deliver(partition, [], OutcomeCounts())
    exposed = generate_latest(metrics.registry).decode()
    assert "acceptance_verify_steps_total{" in exposed
    assert "canary" not in exposed
    stream.flush()
    return stream.bytes.getvalue().decode(), producer.delivered, totals_by_name(metrics.totals)


_TOO_LARGE: Final = KafkaError.MSG_SIZE_TOO_LARGE


def _written(message: Json) -> bytes:
    """Return all bytes of a message, with decoded base64."""
    content = msgspec.json.decode(message["value"])
    headers = [b64decode(value or "") for _, value in content.get("headers") or []]
    parts = [message["value"], message["key"] or b"", repr(message["headers"]).encode(), *headers]
    return b" ".join(parts)


def test_nothing_of_a_payload_and_no_credential_is_logged_counted_or_published(
    stream: _Stream,
) -> None:
    logged, delivered, totals = _run(stream, "debug", "reference")
    events = {msgspec.json.decode(line)["event"] for line in logged.splitlines()}
    assert {"bad_payload", "stats_rejected", "request_finished", "delivery_failed"} <= events
    assert logged.count(TRACE) > 50
    topics = [message["topic"] for message in delivered]
    assert topics.count("records") > 40
    assert topics.count("letters") > 40
    reached = " ".join(totals)
    for outcome in (*MessageOutcome, *RequestOutcome):
        assert outcome in reached, f"no envelope leads to {outcome}"

    assert "canary" not in logged
    for message in delivered:
        assert b"canary" not in _written(message), message["value"]


def test_letters_that_hold_payloads_hold_no_credential_header(stream: _Stream) -> None:
    logged, delivered, _ = _run(stream, "debug", "full")
    letters = [message for message in delivered if message["topic"] == "letters"]
    values = [
        b64decode(msgspec.json.decode(message["value"])["value_base64"] or "")
        for message in letters
    ]
    assert any(CONTENT.encode() in value for value in values), "full letters hold payloads"
    assert "canary" not in logged
    for message in letters:
        assert b"canary" not in _written(message)
    for value in values:
        assert b'"authorization"' not in value


def test_a_preview_shows_content_and_no_credential(stream: _Stream) -> None:
    logged, _, _ = _run(stream, "debug", "reference", preview=4096)
    assert CONTENT in logged
    assert CREDENTIAL not in logged
