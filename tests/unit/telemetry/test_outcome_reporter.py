"""What becomes of outcomes: lines that say where, and letters that do not flood."""

import io
import json
from typing import Any, Final

import msgspec
import pytest

from consumer.core.message import CapturedMessage, Headers
from consumer.core.output_messages import OutputMessage
from consumer.telemetry.clock import SystemClock
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.logging_setup import configure, get_logger
from consumer.telemetry.outcome_reporter import OutcomeReporter
from tests.support.manual_clock import ManualClock
from tests.unit.core.made import (
    TRACE,
    chunk,
    cloudevent,
    cloudevent_headers,
    encode,
    last_chunk,
    message,
    native,
    pipeline,
    vllm_stats,
    whole,
)
from tests.unit.kafka.fakes import Log

CANARY: Final = "canary-55aa"
TRACE_HEADER: Final = ("traceparent", TRACE.encode())
Json = dict[str, Any]


class Reported:
    """A reporter behind a partition, and what it says."""

    def __init__(
        self, *, skip: frozenset[tuple[str, int, int]] = frozenset(), **options: Any
    ) -> None:
        self.clock, self.log = ManualClock(), Log()
        defaults: Json = {
            "dead_letters": "full",
            "record_limit": 1_000_000,
            "letter_limit": 1_000_000,
            "log_payloads": False,
            "clock": self.clock,
            "log": self.log,
        }
        self.reporter = OutcomeReporter(**defaults | options)
        self.partition = pipeline(skip=skip).partition("input", 3, 0)
        self.offset = 0

    def feed(self, value: bytes | None, **options: Any) -> list[OutputMessage]:
        """Feed a message, and return what comes out."""
        given = message(value, self.offset, **options)
        self.offset += 1
        result = self.partition.feed(given)
        outputs = self.reporter.report_message(given, result, self.partition.origin)
        for finished in self.partition.drain():
            outputs += self.reporter.report_request(finished, self.partition.origin)
        return outputs

    def lines(self, event: LogEvent) -> list[Json]:
        return self.log.of(event)


def _letter(output: OutputMessage) -> Json:
    assert output.output == "dead_letter"
    decoded: Json = msgspec.json.decode(output.value)
    return decoded


def _with_stats(request_id: str, **members: Any) -> bytes:
    stats = vllm_stats()
    stats["speculative_decoding"] |= members
    return native(request_id, body={**whole(request_id), "metrics": stats})


# Lines


def test_the_line_of_a_bad_payload_says_where_it_is_and_how_to_recognise_it() -> None:
    reported = Reported()
    reported.feed(b"{broken", key=b"the key")
    [line] = reported.lines(LogEvent.BAD_PAYLOAD)
    assert line == line | {
        "level": "warning",
        "topic": "input",
        "partition": 3,
        "offset": 0,
        "key": "the key",
        "size": 7,
        "reason": "invalid_json",
        "suppressed": 0,
    }
    assert len(line["digest"]) == 32
    assert "payload" not in line


@pytest.mark.parametrize(
    ("key", "shown"), [(None, None), (b"\xff\x00" + b"k" * 500, "\ufffd\x00" + "k" * 126)]
)
def test_a_key_of_any_kind_is_shown_in_part(key: bytes | None, shown: str | None) -> None:
    reported = Reported()
    reported.feed(b"{broken", key=key)
    assert reported.lines(LogEvent.BAD_PAYLOAD)[0]["key"] == shown


def test_lines_are_limited_by_reason_and_say_how_many_were_held_back() -> None:
    reported = Reported()
    for _ in range(25):
        reported.feed(b"{broken")
    reported.feed(b"neither this nor that")
    lines = reported.lines(LogEvent.BAD_PAYLOAD)
    assert [line["reason"] for line in lines].count("invalid_json") == 10
    assert [line["reason"] for line in lines].count("unrecognised_format") == 1
    reported.clock.advance(60)
    reported.feed(b"{broken")
    assert reported.lines(LogEvent.BAD_PAYLOAD)[-1]["suppressed"] == 15


def test_a_refused_request_says_where_and_which() -> None:
    reported = Reported()
    reported.feed(_with_stats("r", num_accepted_draft_tokens=10_000))
    [line] = reported.lines(LogEvent.STATS_REJECTED)
    assert line == line | {
        "topic": "input",
        "partition": 3,
        "offset": 0,
        "last_offset": 0,
        "request_id": "r",
        "outcome": "malformed_stats",
        "reason": "accepted_exceeds_drafted",
        "claims": ["vllm"],
        "suppressed": 0,
    }


def test_a_statement_that_differs_from_the_counts_has_a_line_that_names_its_engine() -> None:
    reported = Reported()
    [output] = reported.feed(_with_stats("r", mean_acceptance_length=9.9))
    [line] = reported.lines(LogEvent.STATEMENT_DIFFERS)
    assert (line["engine"], line["fields"]) == ("vllm", ["mean_acceptance_length"])
    assert (line["request_id"], line["suppressed"]) == ("r", 0)
    assert msgspec.json.decode(output.value)["mean_acceptance_length"] == 2.875


def test_line_and_letter_of_numbers_of_a_wrong_type_name_the_key_and_no_value() -> None:
    reported = Reported()
    [output] = reported.feed(_with_stats("r", num_spec_steps=CANARY))
    [line] = reported.lines(LogEvent.STATS_REJECTED)
    said = "Expected `int`, got `str` - at `$.num_spec_steps`"
    assert line["detail"] == said
    assert _letter(output)["detail"] == f"claimed by vllm; {said}"


def test_common_outcomes_are_not_logged() -> None:
    reported = Reported()
    outputs = [
        *reported.feed(native("a", body={**whole("a"), "metrics": None})),
        *reported.feed(None),
        *reported.feed(native("b", body={"error": {"message": CANARY}}, status=500)),
    ]
    assert outputs == []
    assert reported.log.lines == []


def test_an_adapter_that_raises_is_logged_by_name_and_not_for_every_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported = Reported()

    def broken(_responses: object) -> bool:
        raise ZeroDivisionError(CANARY)

    adapter = reported.partition._pipeline.adapters[-1]
    monkeypatch.setattr(adapter, "can_adapt", broken)
    for number in range(20):
        reported.feed(_with_stats(f"r{number}"))
    lines = reported.lines(LogEvent.ADAPTER_FAILED)
    assert len(lines) == 10
    assert lines[0] == lines[0] | {
        "level": "error",
        "engine": "vllm",
        "error": "ZeroDivisionError",
        "request_id": "r0",
        "topic": "input",
        "partition": 3,
        "offset": 0,
    }


@pytest.mark.parametrize("preview", [0, 20])
def test_payloads_are_shown_only_as_far_as_the_settings_allow(preview: int) -> None:
    class Stream(io.TextIOWrapper):
        def __init__(self) -> None:
            self.bytes = io.BytesIO()
            super().__init__(self.bytes, encoding="utf-8")

    stream = Stream()
    configure("json", preview_bytes=preview, stream=stream)
    try:
        reported = Reported(log=get_logger(), log_payloads=preview > 0, clock=SystemClock())
        reported.feed(b"{broken " + b"." * 12 + CANARY.encode())
        reported.feed(_with_stats(CANARY[:6], num_accepted_draft_tokens=10_000))
        stream.flush()
    finally:
        configure()
    text = stream.bytes.getvalue().decode()
    bad, refused = map(json.loads, text.splitlines())
    assert bad.get("payload") == ("{broken ............" if preview else None)
    assert refused["event"] == "stats_rejected"
    assert CANARY not in text


def test_at_level_debug_each_request_has_a_line_that_says_what_became_of_it() -> None:
    configure(level="debug")
    try:
        reported = Reported()
        reported.feed(native("a", sequence=0, body=chunk()), headers=[TRACE_HEADER])
        reported.feed(native("a", sequence=1, body=last_chunk()))
        reported.feed(native("a", sequence=2, body="[DONE]"))
        reported.feed(native("b", body={**whole("b"), "metrics": None}, model="other"))
    finally:
        configure()
    published, without = reported.lines(LogEvent.REQUEST_FINISHED)
    assert published == {
        "level": "debug",
        "event": "request_finished",
        "topic": "input",
        "partition": 3,
        "offset": 0,
        "last_offset": 2,
        "request_id": "a",
        "traceparent": TRACE,
        "outcome": "published",
        "reason": None,
        "engine": "vllm",
        "model": "demo-8b",
    }
    assert (without["request_id"], without["outcome"]) == ("b", "no_stats")
    assert (without["reason"], without["engine"], without["model"]) == ("absent", None, "other")
    assert "traceparent" not in without


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (native("r", body="some text"), []),
        (native("r", body=7), []),
        (native("r", body_base64="%"), []),
        (b"{broken", cloudevent_headers(id="r")),
        (encode(cloudevent(id="r", data="text")), []),
    ],
)
def test_the_line_of_a_bad_payload_names_the_request_and_its_trace_where_they_can_be_read(
    value: bytes, headers: Headers
) -> None:
    reported = Reported()
    reported.feed(value, headers=[*headers, TRACE_HEADER])
    [line] = reported.lines(LogEvent.BAD_PAYLOAD)
    assert (line["request_id"], line["traceparent"]) == ("r", TRACE)


def test_the_line_of_refused_numbers_names_the_trace() -> None:
    reported = Reported()
    reported.feed(_with_stats("r", num_accepted_draft_tokens=10_000), headers=[TRACE_HEADER])
    assert reported.lines(LogEvent.STATS_REJECTED)[0]["traceparent"] == TRACE


# Letters


def test_a_flood_of_bad_payloads_is_referenced_and_each_has_its_letter() -> None:
    reported = Reported()
    letters = [_letter(output) for _ in range(50) for output in reported.feed(b"{broken")]
    assert len(letters) == 50
    full = [letter["value_base64"] is not None for letter in letters]
    assert full == [True] * 20 + [False] * 30
    assert all(letter["size"] == 7 and letter["digest"] for letter in letters)
    reported.clock.advance(1)
    [output] = reported.feed(b"{broken")
    assert _letter(output)["value_base64"] is not None


@pytest.mark.parametrize("dead_letters", ["reference", "off"])
def test_letters_are_what_the_settings_want(dead_letters: str) -> None:
    reported = Reported(dead_letters=dead_letters)
    outputs = reported.feed(b"{broken")
    refused = reported.feed(_with_stats("r", num_accepted_draft_tokens=10_000))
    assert len(reported.log.lines) == 2, "logged all the same"
    if dead_letters == "off":
        assert outputs + refused == []
        return
    [letter], [request] = map(_letter, outputs), map(_letter, refused)
    assert (letter["value_base64"], letter["truncated"]) == (None, True)
    assert request["stats"], "numbers are not payload"


def test_a_letter_of_a_refused_request_is_keyed_by_it() -> None:
    reported = Reported()
    [output] = reported.feed(_with_stats("r", num_accepted_draft_tokens=10_000))
    assert output.key == b"r"
    letter = _letter(output)
    assert (letter["kind"], letter["reason"]) == ("request", "accepted_exceeds_drafted")


def test_a_letter_is_never_larger_than_its_topic_takes() -> None:
    reported = Reported(letter_limit=20_000)
    [output] = reported.feed(b"\x00" * 500_000)
    assert len(output.value) < 20_000


# Records


def test_a_record_goes_out_under_its_request_and_time() -> None:
    reported = Reported()
    assert reported.feed(native("r", sequence=0, body=chunk())) == []
    assert reported.feed(native("r", sequence=1, body=last_chunk())) == []
    [output] = reported.feed(native("r", sequence=2, body="[DONE]"), at=40)
    assert (output.output, output.key, output.timestamp) == ("record", b"r", 1_767_225_600_040)
    assert reported.log.lines == []


@pytest.mark.parametrize(
    ("ahead", "left"), [(0, False), (3_599_000, False), (3_601_000, True), (10**12, True)]
)
def test_a_timestamp_that_brokers_refuse_is_left_to_the_producer(ahead: int, *, left: bool) -> None:
    reported = Reported()
    timestamp = reported.clock.wall() + ahead
    [output] = reported.feed(native("r", body=whole(), timestamp=timestamp))
    assert output.timestamp == (0 if left else timestamp)
    assert msgspec.json.decode(output.value)["completed_at"] is not None


def test_a_shortened_record_is_logged_with_its_request() -> None:
    reported = Reported(record_limit=4_000)
    steps = 2_000
    stats = {
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": steps,
        "num_draft_tokens": 3 * steps,
        "acceptance_histogram": [0, steps, 0, 0],
        "per_step_accepted": [1] * steps,
        "per_step_drafted": [3] * steps,
    }
    [output] = reported.feed(_with_stats("r", **stats))
    assert len(output.value) < 4_000
    [line] = reported.lines(LogEvent.RECORD_TOO_LARGE)
    assert line == line | {"request_id": "r", "topic": "input", "partition": 3, "offset": 0}


# What the settings pass over


@pytest.mark.parametrize("value", [native("r", body=whole("r")), b"{broken", None])
def test_a_message_that_the_settings_pass_over_has_a_line_and_a_letter(value: bytes | None) -> None:
    """Its bytes crash a process: the letter holds only their place."""
    reported = Reported(skip=frozenset({("input", 3, 0)}))
    [output] = reported.feed(value)
    letter = _letter(output)
    assert (letter["kind"], letter["outcome"], letter["reason"]) == (
        "message",
        "skipped",
        "skipped_by_operator",
    )
    assert letter["value_base64"] is None
    [line] = reported.lines(LogEvent.MESSAGE_SKIPPED)
    assert line == line | {"topic": "input", "partition": 3, "offset": 0, "size": len(value or b"")}


@pytest.mark.parametrize("named", [("input", 3, 1), ("input", 2, 0), ("other", 3, 0)])
def test_only_the_message_that_is_named_is_passed_over(named: tuple[str, int, int]) -> None:
    reported = Reported(skip=frozenset({named}))
    [output] = reported.feed(native("r", body=whole("r")))
    assert output.output == "record"


def test_it_has_no_letter_where_there_are_none() -> None:
    reported = Reported(skip=frozenset({("input", 3, 0)}), dead_letters="off")
    assert reported.feed(b"{broken") == []
    assert reported.lines(LogEvent.MESSAGE_SKIPPED)


def test_headers_of_a_bad_message_are_kept_without_credentials() -> None:
    reported = Reported()
    given: list[tuple[str, bytes | str | None]] = [
        ("Authorization", CANARY.encode()),
        ("x-request-id", b"r"),
    ]
    captured = CapturedMessage(at_topic="input", the_value=b"{broken", the_headers=given)
    result = reported.partition.feed(captured)
    [output] = reported.reporter.report_message(captured, result, reported.partition.origin)
    names = [name for name, _ in _letter(output)["headers"]]
    assert names == ["Authorization", "x-request-id"]
    assert CANARY.encode() not in output.value
    assert b"Y2FuYXJ5" not in output.value, "in base64 neither"
