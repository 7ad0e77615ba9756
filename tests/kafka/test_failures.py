"""Errors of a cluster that is reachable, and how the service handles them."""

import json
import signal
import time
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime
from random import Random

import pytest
import zstandard

from consumer.telemetry.clock import SystemClock
from tests.kafka.harness import (
    SECONDS,
    Bench,
    ServiceProcess,
    eventually,
    numbered,
    request_ids,
    stream,
    whole,
)

pytestmark = pytest.mark.kafka


# Rejected at the start


@pytest.mark.parametrize("setting", ["topics", "output_topic", "dead_letter_topic"])
def test_a_missing_topic_is_refused_by_name(bench: Bench, setting: str) -> None:
    service = bench.start(**{setting: "not-there"})
    assert service.wait() == 2
    [line] = service.lines("start_failed")
    assert not service.lines("service_started")
    assert f"{setting}: topic 'not-there' does not exist" in line["error"]


def test_a_dead_letter_topic_that_is_not_used_need_not_exist(bench: Bench) -> None:
    service = bench.start(dead_letter_topic="not-there", dead_letters="off")
    bench.send(b"{broken", "r")
    bench.read_up()
    assert service.stop() == 0
    assert service.lines("bad_payload")


def test_check_reports_success_and_leaves_no_trace(bench: Bench) -> None:
    bench.send_whole("r")
    service = bench.start("--check")
    assert service.wait() == 0
    assert "all topics exist" in service.log.read_text(encoding="utf-8")
    assert all(one.offset < 0 for one in bench.committed().values())
    assert bench.records() == []


def test_check_refuses_a_missing_topic_in_plain_words(bench: Bench) -> None:
    service = bench.start("--check", output_topic="not-there")
    assert service.wait() == 2
    assert service.log.read_text(encoding="utf-8") == (
        "acceptance-consumer: output_topic: topic 'not-there' does not exist, or this "
        "service may not describe it; create the topic or allow Describe on it\n"
    )


# Messages that the output topics reject as they are


def _detailed(request_id: str, steps: int) -> bytes:
    """Return a response of vLLM with what each step accepted."""
    event = json.loads(whole(request_id, steps))
    event["body"]["metrics"]["speculative_decoding"] |= {
        "per_step_accepted": [0, 3] * (steps // 2),
        "per_step_drafted": [3] * steps,
    }
    return json.dumps(event).encode()


def test_a_record_too_large_for_its_topic_is_published_without_its_steps(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(outputs={"max.message.bytes": "8000"})
    service = bench.start()
    bench.send(_detailed("small", 10), "small")
    bench.send(_detailed("large", 4000), "large")
    bench.flush()
    small, large = bench.record_of("small"), bench.record_of("large")
    assert small.json["per_step_drafted"] == [3] * 10
    assert "left-out" not in small.headers
    assert (large.json["per_step_accepted"], large.json["per_step_drafted"]) == (None, None)
    assert large.json["num_spec_steps"] == 4000
    assert large.headers["left-out"] == b"per_step_accepted, per_step_drafted"
    line = service.wait_for("record_too_large", request_id="large")
    assert (line["topic"], line["offset"]) == (bench.input, large.json["source_first_offset"])
    assert service.stop() == 0


def test_many_records_fit_a_topic_with_a_low_limit(
    make_bench: Callable[..., Bench],
) -> None:
    """Brokers apply their limit to whole batches, which the client does not divide."""
    bench = make_bench(partitions=1, outputs={"max.message.bytes": "8000"})
    bench.send_whole(*numbered(300))
    service = bench.start(kafka_producer="linger.ms=200,compression.type=none")
    assert len(request_ids(bench.read_up())) == 300
    assert service.stop() == 0
    assert not service.lines(level="error")


def test_a_message_that_is_too_large_for_its_topic_is_dropped_and_logged(
    make_bench: Callable[..., Bench],
) -> None:
    """A restart would meet the message again."""
    bench = make_bench(partitions=1, outputs={"max.message.bytes": "1200"})
    service = bench.start()
    name = Random(1).randbytes(500).hex()  # That no compression makes small.
    bench.send(whole(name), "large")
    bench.send_whole("fits")
    bench.record_of("fits")
    line = service.wait_for("delivery_failed", action="dropped")
    expected = {"topic": bench.input, "partition": 0, "offset": 0, "output_topic": bench.output}
    assert line == line | expected | {"request_id": name}
    bench.wait_until_committed()
    assert service.stop() == 0
    totals = service.totals()
    assert totals["dropped_outputs"] == 1


def test_a_large_bad_payload_is_only_referenced_where_it_does_not_fit(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(outputs={"max.message.bytes": "5000"})
    service = bench.start()
    bench.send(b"\x00" * 20_000, b"\xff\xfe", partition=1)
    bench.read_up()
    assert service.stop() == 0
    [letter] = bench.letters()
    assert (letter.json["size"], letter.json["value_base64"]) == (20_000, None)
    assert letter.json["truncated"] is True


def test_a_clock_far_ahead_does_not_keep_records_from_their_topic(bench: Bench) -> None:
    """Brokers reject such timestamps, and with one message all of its batch."""
    service = bench.start()
    for request_id, timestamp in (("sane", None), ("ahead", 4_102_444_799_999), ("sane too", None)):
        event = json.loads(whole(request_id)) | ({"timestamp": timestamp} if timestamp else {})
        bench.send(json.dumps(event).encode(), request_id, partition=0)
    bench.flush()
    ahead = bench.record_of("ahead")
    assert ahead.json["completed_at"] == "2099-12-31T23:59:59.999Z"
    assert ahead.timestamp < 4_000_000_000_000
    assert request_ids(bench.read_up()) == ["sane", "ahead", "sane too"]
    assert service.stop() == 0
    assert not service.lines("delivery_failed")


def test_kilobytes_that_inflate_to_millions_of_objects_stop_neither_others_nor_the_service(
    bench: Bench,
) -> None:
    """70 of them kept the loop from turning for 204 s."""
    body = b'{"object":"chat.completion","z":NaN,"choices":[' + b"{}," * 5_500_000 + b"{}]}"
    encoded = b64encode(zstandard.compress(body)).decode()
    service = bench.start()
    for number in range(70):
        bomb = {"request_id": f"bomb-{number}", "body_base64": encoded, "final": True}
        bench.send(json.dumps(bomb).encode(), partition=0)
    bench.send_whole("after", partition=0)
    bench.flush()
    assert bench.record_of("after").json["request_id"] == "after"
    for number in range(70):
        bomb = {"request_id": f"again-{number}", "body_base64": encoded, "final": True}
        bench.send(json.dumps(bomb).encode(), partition=0)
    bench.flush()
    began = time.monotonic()
    assert service.stop() == 0
    assert time.monotonic() - began < 10


def test_a_topic_that_refuses_old_timestamps_gets_records_with_new_ones(
    make_bench: Callable[..., Bench],
) -> None:
    """Otherwise reading an old topic again would stop the service."""
    bench = make_bench(outputs={"message.timestamp.before.max.ms": "3600000"})
    service = bench.start()
    bench.send_whole(*numbered(5), partition=0, timestamp=1_700_000_000_000)
    got = bench.read_up()
    assert request_ids(got) == numbered(5)
    assert got[0].json["completed_at"] == "2023-11-14T22:13:20.000Z"
    assert service.stop() == 0


def test_an_output_topic_that_is_deleted_stops_the_service_with_the_reason(bench: Bench) -> None:
    service = bench.start(kafka_producer="topic.metadata.propagation.max.ms=500")
    service.wait_for("partitions_assigned")
    bench.kafka.delete_topic(bench.output)
    bench.send_whole("r", partition=2)
    assert service.wait() == 1
    [line] = service.lines("delivery_failed")
    assert line == line | {"topic": bench.input, "partition": 2, "offset": 0, "request_id": "r"}
    [line] = service.lines("service_stopped")
    assert bench.output in line["error"]
    assert bench.committed()[2].offset <= 0


# Bad payloads


def test_a_flood_of_bad_payloads_is_counted_in_few_lines_and_mostly_referenced(
    bench: Bench,
) -> None:
    for number in range(200):
        bench.send(b"{broken %d" % number, f"k{number}", partition=0)
    bench.send(b"neither this nor that", "other", partition=0)
    bench.flush()
    service = bench.start()  # Now, since so many a second are full, and all are to come at once.
    bench.read_up()
    assert service.stop() == 0
    lines = service.lines("bad_payload", reason="invalid_json")
    assert len(lines) == 10
    assert lines[0] == lines[0] | {
        "topic": bench.input,
        "partition": 0,
        "offset": 0,
        "key": "k0",
        "size": 9,
        "suppressed": 0,
    }
    assert len(service.lines("bad_payload", reason="unrecognised_format")) == 1
    totals = service.totals()
    assert totals["message bad_payload(invalid_json)"] == 200
    letters = bench.letters()
    assert len(letters) == 201
    assert sum(one.json["value_base64"] is not None for one in letters) < 100
    assert {one.json["source_first_offset"] for one in letters} == set(range(201))


# What happens to the input topic while it is read

# The group does not give up a process that stands still for the time of a few requests.
_PATIENT = {"kafka_session_timeout_ms": "30000"}


def test_messages_deleted_unread_are_logged_and_reading_goes_on(
    bench: Bench,
) -> None:
    first, *rest = stream("open")
    service = bench.start(**_PATIENT)
    bench.send(first, "open", partition=0)
    bench.read_up()
    service.process.send_signal(signal.SIGSTOP)
    bench.send_whole(*numbered(10), partition=0)
    bench.send_events("open", rest, partition=0)
    bench.delete_below(0, 7)
    service.process.send_signal(signal.SIGCONT)
    got = bench.read_up()
    # What was fetched before they were deleted has been read.
    assert {"r5", "r6", "r7", "r8", "r9", "open"} <= set(request_ids(got))
    record = bench.record_of("open").json
    assert (record["source_first_offset"], record["stream_complete"]) == (0, True)
    assert service.stop() == 0
    # ... and it may be the first of a few, where they came to the broker one by one.
    for line in service.lines("kafka_error", partition=0):
        assert line["offset"] in range(2, 7)
        assert line["start_offset"] == 7


@pytest.fixture
def before_deletion(make_bench: Callable[..., Bench]) -> tuple[Bench, ServiceProcess]:
    """Five requests published and one open, of a topic that is about to be deleted."""
    bench = make_bench(partitions=1)
    service = bench.start(kafka_topic_metadata_refresh_interval_ms="1000", **_PATIENT)
    bench.send_whole(*numbered(5, "old"))
    bench.send(stream("open")[0], "open")
    bench.read_up()
    bench.wait_until_committed()
    return bench, service


def test_a_recreated_topic_is_read_from_its_beginning(
    before_deletion: tuple[Bench, ServiceProcess],
) -> None:
    bench, service = before_deletion
    # Else it may see that the topic is missing, and lose the partition first.
    service.process.send_signal(signal.SIGSTOP)
    bench.kafka.delete_topic(bench.input)
    bench.kafka.create_topic(bench.input, bench.partitions)
    service.process.send_signal(signal.SIGCONT)
    bench.send_whole("new")
    assert bench.record_of("new").json["source_first_offset"] == 0
    bench.read_up()
    bench.wait_until_committed()
    assert service.stop() == 0
    totals = service.totals()
    assert totals["request incomplete(idle_timeout)"] == 1


def test_a_topic_that_comes_back_after_a_while_is_read_from_its_beginning(
    before_deletion: tuple[Bench, ServiceProcess],
) -> None:
    bench, service = before_deletion
    bench.kafka.delete_topic(bench.input)
    service.wait_for("partitions_lost")
    bench.kafka.create_topic(bench.input, bench.partitions)
    bench.send_whole("new")
    assert bench.record_of("new").json["source_first_offset"] == 0
    assert service.stop() == 0
    assert service.lines("topic_unavailable")


# Silence


def test_a_silent_partition_is_closed_after_its_time_and_not_before(bench: Bench) -> None:
    service = bench.start(idle_timeout="2s")
    service.wait_for("partitions_assigned")
    *events, _ = stream("cut")
    sent = SystemClock().wall()
    bench.send_events("cut", events, partition=0)
    record = bench.record_of("cut").json
    assert (record["stream_complete"], record["incomplete_reason"]) == (False, "partition_silent")
    line = service.wait_for("partition_silent")
    assert (line["partition"], line["requests"]) == (0, 1)
    assert datetime.fromisoformat(line["timestamp"]).timestamp() * 1000 - sent >= 2000
    assert service.stop() == 0


def test_a_partition_behind_an_open_transaction_is_not_silent(bench: Bench) -> None:
    """The end of the request may have been written already, and not be visible yet."""
    *events, last = stream("held")
    producer = bench.transactional_producer()
    bench.send_events("held", events, partition=0)
    bench.send(stream("silent")[0], "silent", partition=1)
    bench.flush()
    producer.begin_transaction()
    producer.produce(bench.input, last, "held", 0)
    producer.flush(SECONDS)
    service = bench.start(idle_timeout="1s")  # Now, or it might be silent before.
    service.wait_for("partition_silent", partition=1)
    bench.send(stream("silent later")[0], "silent later", partition=1)
    bench.flush()
    eventually(lambda: len(service.lines("partition_silent")) == 2, "another silence")
    assert not service.lines("partition_silent", partition=0)
    producer.commit_transaction(SECONDS)
    assert bench.record_of("held").json["stream_complete"] is True
    assert service.stop() == 0
