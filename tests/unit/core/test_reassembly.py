"""From events to finished responses: attempts, repeats, disorder, ends, timeouts and bounds."""

from typing import Any

import pytest

from consumer.core.outcomes import RequestResult
from consumer.core.partition import MessageResult, Partition
from consumer.core.reassembly import index
from consumer.core.reassembly.limits import Limits
from schemas import BadPayloadReason, IncompleteReason, MessageOutcome, RequestOutcome, SkipReason
from tests.unit.core.made import (
    BLOCKS_UNTIL_DECIDED,
    TOPIC,
    Json,
    chunk,
    encode,
    last_chunk,
    message,
    native,
    native_segment,
    pipeline,
    short,
    sse,
    trace,
    whole,
)

LIMITS = Limits(idle_timeout_ms=2_000, duplicate_window_ms=1_000, max_reread=100_000)
ERROR: Json = {"error": {"message": "engine died"}}


class Log:
    """A partition that is fed by hand."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.partition: Partition = pipeline(limits).partition(TOPIC, 0, 0)
        self.offset = 0
        self.now = 0
        for _ in range(2):
            self.pass_time(1)

    def feed(self, value: bytes | None, **around: Any) -> MessageResult:
        result = self.partition.feed(message(value, self.offset, self.now, **around))
        self.offset += 1
        return result

    def say(self, request_id: str = "r1", /, **members: Any) -> SkipReason | None:
        """Feed a native event; return why it was skipped."""
        result = self.feed(native(request_id, **members))
        assert result.outcome is not MessageOutcome.BAD_PAYLOAD, result
        assert result.reason is None or isinstance(result.reason, SkipReason)
        return result.reason

    def stream(self, *bodies: Any, request_id: str = "r1", first: int = 0) -> None:
        """Feed chunks with their sequence."""
        for sequence, body in enumerate(bodies, first):
            self.say(request_id, body=body, sequence=sequence)

    def pass_time(self, by: int) -> None:
        """Let stream time advance after this block, with messages that mean nothing."""
        while self.offset % 32:
            self.feed(None)
        for step, blocks in ((0, 1), (by, BLOCKS_UNTIL_DECIDED)):
            self.now += step
            for _ in range(32 * blocks):
                self.feed(None)

    def outcomes(self) -> list[str]:
        return [short(result) for result in self.partition.drain()]

    def one(self) -> RequestResult:
        [result] = self.partition.drain()
        return result

    def ended(self) -> list[str]:
        self.partition.close_all()
        return self.outcomes()


@pytest.fixture
def log() -> Log:
    return Log()


# One stream


def test_created_that_changes_every_second_is_one_stream(log: Log) -> None:
    for number in range(6):
        log.say(body=chunk() | {"created": 1_767_225_600 + number})
    log.say(body=last_chunk())
    log.say(body="[DONE]")
    assert log.ended() == ["published"]


def test_an_id_per_chunk_is_one_stream(log: Log) -> None:
    for number in range(20):
        log.say(body=chunk(f"c{number}"))
    log.say(body=last_chunk("c20"))
    log.say(body="[DONE]")
    assert log.ended() == ["published"]


def test_an_id_per_choice_is_one_stream_and_nobodys_generation(log: Log) -> None:
    for number in range(6):
        log.say(body=chunk(f"c{number % 2}", index=number % 2))
    log.say(body=last_chunk("c0"))
    log.say(body="[DONE]")
    assert log.ended() == ["unattributable"]


def test_streams_that_overlap_are_kept_apart(log: Log) -> None:
    for body in (chunk(), chunk(), last_chunk(), "[DONE]"):
        for number in range(50):
            log.say(f"r{number}", body=body)
    assert log.outcomes() == ["published"] * 50


def test_two_sources_may_use_the_same_id() -> None:
    core = pipeline(LIMITS)
    bare, enveloped = encode(chunk("x")), native("x", body=chunk("y"))
    partition = core.partition(TOPIC, 0, 0)
    partition.feed(message(bare, 0))
    partition.feed(message(enveloped, 1))
    assert partition.open_requests == 1  # Neither names a source, so they are one request.


# Ends


@pytest.mark.parametrize(
    "events",
    [
        [{"body": last_chunk()}, {"body": "[DONE]"}],
        [{"body": chunk()}, {"body": last_chunk(), "final": True}],
        [{"body": last_chunk()}, {"final": True}],
        [{"body": last_chunk()}, {"body": "", "final": True}],
        [{"body": last_chunk()}, {"body": sse("[DONE]").decode()}],
        [{"body": chunk()}, {"body": whole()}],
        [{"body": chunk()}, {"body": [whole()]}],
        [{"body": sse(chunk(), last_chunk(), "[DONE]").decode()}],
        [{"body": whole()}],
    ],
)
@pytest.mark.parametrize("sequenced", [False, True])
def test_every_end_mark_finishes_a_stream(log: Log, events: list[Json], sequenced: bool) -> None:
    for sequence, event in enumerate(events):
        log.say(**event, **({"sequence": sequence} if sequenced else {}))
    result = log.one()
    assert short(result) == "published"
    assert result.record is not None
    assert result.record.stream_complete


def test_other_apis_end_by_their_own_terminator(log: Log) -> None:
    log.say(body={"type": "message_start", "message": {"id": "m1"}})
    log.say(body={"type": "message_stop"})
    assert log.outcomes() == ["no_stats(endpoint_without_stats)"]


def test_an_end_mark_alone_opens_nothing(log: Log) -> None:
    assert log.say(body="[DONE]") is SkipReason.ORPHAN_END
    assert log.say(final=True) is SkipReason.ORPHAN_END
    assert log.say(body=sse("[DONE]").decode()) is SkipReason.ORPHAN_END
    assert log.partition.open_requests == 0


def test_blank_lines_do_not_end_a_stream(log: Log) -> None:
    for body in ("", sse(chunk()).decode(), "\n", sse(last_chunk()).decode(), ""):
        log.say(body=body)
    assert log.partition.open_requests == 1
    log.say(body="[DONE]")
    assert log.outcomes() == ["published"]


def test_a_chunk_that_looks_whole_ends_a_stream_only_if_it_stands_alone(log: Log) -> None:
    finished = {
        "id": "c1",
        "object": "text_completion",
        "choices": [{"index": 0, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }
    log.say(body=finished | {"choices": [{"index": 0, "finish_reason": None}]})
    log.say(body=finished)
    log.say(body=last_chunk())
    log.say(body="[DONE]")
    log.say("r2", body=finished)
    assert log.outcomes() == ["published", "no_stats(absent)"]


def test_without_an_end_mark_a_record_says_that_its_end_was_not_seen(log: Log) -> None:
    log.stream(chunk(), last_chunk())
    log.pass_time(2_100)
    result = log.one()
    assert result.record is not None
    assert not result.record.stream_complete
    assert result.record.incomplete_reason == IncompleteReason.IDLE_TIMEOUT


# Failures


@pytest.mark.parametrize("sequenced", [False, True])
def test_an_error_chunk_fails_the_response_even_if_an_end_mark_follows(
    log: Log, sequenced: bool
) -> None:
    for sequence, body in enumerate((chunk(), last_chunk(), ERROR, "[DONE]")):
        log.say(body=body, **({"sequence": sequence} if sequenced else {}))
    assert log.outcomes() == ["failed_response"]


def test_an_error_chunk_that_comes_early_is_remembered(log: Log) -> None:
    """Out of order, it must not let what belongs before it open the request again."""
    log.say(body=ERROR, sequence=3)
    assert log.say(body="[DONE]", sequence=4) is SkipReason.LATE_REPEAT
    log.say("r2", body=chunk(), sequence=1)
    log.say("r2", body=ERROR, sequence=3)
    for sequence in (0, 2):
        assert log.say("r2", body=chunk(), sequence=sequence) is SkipReason.LATE_REPEAT
    assert log.ended() == ["failed_response"] * 2


@pytest.mark.parametrize(
    "members", [{}, {"final": True}, {"body": "Bad Gateway"}, {"body": {"detail": "no"}}]
)
def test_the_status_of_an_error_is_a_failed_response_whatever_the_body(
    log: Log, members: Json
) -> None:
    assert log.say(status=502, **members) is None
    assert log.outcomes() == ["failed_response"]
    log.say("r2", body=chunk())
    log.say("r2", status=502, **members)
    assert log.outcomes() == ["failed_response"]


@pytest.mark.parametrize("text", ["hello", "7", '"data: x"'])
def test_text_that_nothing_came_before_is_refused(log: Log, text: str) -> None:
    refused = BadPayloadReason.BODY_NOT_A_RESPONSE
    assert log.feed(native(body=text)).reason is refused
    assert log.feed(native("r2", body=text, sequence=0)).reason is refused
    log.say("r3", body=chunk())
    assert log.feed(native("r3", body=text)).reason is refused


@pytest.mark.parametrize("size", [5, 9, 40, 41, 131, 327])
@pytest.mark.parametrize("numbered", [True, False])
def test_text_cut_anywhere_is_joined(log: Log, size: int, *, numbered: bool) -> None:
    """Taken for lines of their own, the pieces of a network read were damaged or refused."""
    text = sse(chunk(), chunk(finish="stop"), last_chunk(), "[DONE]").decode()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    for sequence, piece in enumerate(pieces):
        log.say(body=piece, **({"sequence": sequence} if numbered else {}))
    assert log.outcomes() == ["published"]


def test_lines_may_be_logged_one_by_one_without_their_ends(log: Log) -> None:
    chunks = [sse(chunk()).decode().rstrip(), sse(last_chunk()).decode().rstrip()]
    for line in ("event: x", chunks[0], ": ping", "data:", chunks[1], "data: [DONE]"):
        log.say(body=line)
        log.feed(native_segment(line.encode(), "r2"))
    results = log.partition.drain()
    assert [result.record and result.record.stream_complete for result in results] == [True] * 2


def test_pieces_of_text_may_come_out_of_order(log: Log) -> None:
    text = sse(chunk(), last_chunk(), "[DONE]").decode()
    for sequence in (2, 0, 1):
        log.say(
            body=text[sequence * 150 : (sequence + 1) * 150 if sequence < 2 else None],
            sequence=sequence,
        )
    assert log.outcomes() == ["published"]


def test_a_document_of_no_response_opens_nothing(log: Log) -> None:
    result = log.feed(native(body={"a": 1}))
    assert result.reason is BadPayloadReason.BODY_NOT_A_RESPONSE
    assert log.say(body={"object": "list", "data": []}) is SkipReason.UNRELATED_BODY
    result = log.feed(native(body={"a": 1}, sequence=0, final=True))
    assert result.reason is BadPayloadReason.BODY_NOT_A_RESPONSE
    assert log.partition.open_requests == 0


def test_inside_a_stream_such_a_document_counts_for_the_order_only(log: Log) -> None:
    log.stream(chunk(), {"type": "keepalive"}, last_chunk(), "[DONE]")
    assert log.outcomes() == ["published"]


# Order, repeats, gaps


def test_chunks_out_of_order_are_waited_for(log: Log) -> None:
    for sequence, body in ((0, chunk()), (3, "[DONE]"), (2, last_chunk())):
        log.say(body=body, sequence=sequence)
    assert log.outcomes() == []
    log.say(body=chunk(), sequence=1)
    assert log.outcomes() == ["published"]


def test_the_latest_statistics_by_sequence_win_and_not_by_arrival(log: Log) -> None:
    log.say(body=last_chunk(accepted=6), sequence=2)
    log.say(body=last_chunk(accepted=3), sequence=1)
    log.say(body=chunk(), sequence=0)
    log.say(body="[DONE]", sequence=3)
    record = log.one().record
    assert record is not None
    assert record.num_accepted_draft_tokens == 6


def test_a_repeated_sequence_is_a_duplicate_and_changes_nothing(log: Log) -> None:
    log.stream(chunk(), last_chunk(accepted=3))
    assert log.say(body=last_chunk(accepted=6), sequence=1) is SkipReason.DUPLICATE
    log.say(body="[DONE]", sequence=2)
    record = log.one().record
    assert record is not None
    assert record.num_accepted_draft_tokens == 3


def test_sequences_may_begin_at_one(log: Log) -> None:
    """A fleet that counts from 1 was marked `gap` on every record, after a timeout."""
    log.stream(chunk(), chunk(finish="stop"), last_chunk(), "[DONE]", first=1)
    result = log.one()
    assert result.record is not None
    assert result.record.stream_complete
    assert log.say(body=chunk(), sequence=1) is SkipReason.LATE_REPEAT
    log.stream(chunk("c2"), last_chunk("c2"), "[DONE]", first=1)
    assert log.one().response.attempt == 1


def test_a_retry_of_a_fleet_that_counts_from_one_is_a_new_attempt(log: Log) -> None:
    log.stream(chunk(), chunk(), first=1)
    log.stream(chunk() | {"created": 7}, last_chunk(), "[DONE]", first=1)
    assert [result.response.attempt for result in log.partition.drain()] == [1]


def test_of_events_that_are_out_of_order_the_one_with_sequence_0_is_waited_for(log: Log) -> None:
    for sequence in (2, 1, 3):
        log.say(body="[DONE]" if sequence == 3 else chunk(), sequence=sequence)
    log.say("r2", body=last_chunk(), sequence=1, final=True)
    assert log.outcomes() == []
    log.say("r2", body=chunk(), sequence=0)
    log.say(body=last_chunk(), sequence=0)
    assert log.outcomes() == ["published"] * 2


def test_segments_from_sequence_1_on_are_joined_when_0_will_not_come(log: Log) -> None:
    text = sse(chunk(), last_chunk(), "[DONE]")
    for sequence in range(3):
        piece = text[sequence * 150 : (sequence + 1) * 150 if sequence < 2 else None]
        log.feed(native_segment(piece, sequence=sequence + 1))
    assert log.outcomes() == []
    assert log.ended() == ["published"]


@pytest.mark.parametrize("numbered", [True, False])
def test_the_usage_chunk_may_follow_a_finish_reason_that_is_called_final(
    log: Log, *, numbered: bool
) -> None:
    """Some producers take the finish reason for the end, and lost all numbers by it."""
    for sequence, body in enumerate([chunk(), chunk(finish="stop"), last_chunk()]):
        assert log.outcomes() == []
        around = {"sequence": sequence} if numbered else {}
        log.say(body=body, final=sequence == 1, **around)
    result = log.one()
    assert result.record is not None
    assert result.record.stream_complete


def test_a_stream_without_usage_that_is_called_final_is_complete_when_the_time_is_up(
    log: Log,
) -> None:
    log.say(body=chunk(finish="stop"), final=True)
    assert log.outcomes() == []
    log.pass_time(2_100)
    assert log.outcomes() == ["no_stats(stream_without_usage_chunk)"]


def test_a_gap_is_named_when_the_time_is_up(log: Log) -> None:
    log.stream(chunk(), chunk())
    log.stream(last_chunk(), "[DONE]", first=3)
    log.stream(chunk(), request_id="r2", first=1)
    log.pass_time(2_100)
    first, second = log.partition.drain()
    assert first.record is not None
    assert first.record.incomplete_reason == IncompleteReason.GAP
    assert short(second) == "incomplete(gap)"


def test_late_repeats_neither_reopen_a_request_nor_publish_it_twice(log: Log) -> None:
    log.stream(chunk(), last_chunk(), "[DONE]")
    assert log.outcomes() == ["published"]
    for sequence, body in enumerate((chunk(), last_chunk(), "[DONE]")):
        assert log.say(body=body, sequence=sequence) is SkipReason.LATE_REPEAT
        assert log.say(body=body) is SkipReason.LATE_REPEAT
    assert log.ended() == []


def test_repeats_that_keep_coming_keep_a_request_known(log: Log) -> None:
    """A producer that repeats a chunk with statistics would publish it every three minutes."""
    log.stream(chunk(), last_chunk(), "[DONE]")
    for _ in range(10):
        log.pass_time(2_000)
        assert log.say(body=last_chunk(), sequence=1) is SkipReason.LATE_REPEAT
    log.pass_time(3_100)
    assert log.say(body=last_chunk(), sequence=1) is None
    assert log.outcomes() == ["published"]


def test_repeats_do_not_keep_a_request_open(log: Log) -> None:
    log.stream(chunk(), chunk())
    for _ in range(5):
        log.pass_time(500)
        log.say(body=chunk(), sequence=1)
    assert log.outcomes() == ["incomplete(idle_timeout)"]


# Attempts


def test_a_client_that_reuses_its_id_after_an_error_gets_a_second_outcome(log: Log) -> None:
    for body in (chunk("a"), ERROR, chunk("b"), last_chunk("b"), "[DONE]"):
        log.say(body=body)
    failed, published = log.partition.drain()
    assert (short(failed), failed.response.attempt) == ("failed_response", 0)
    assert (short(published), published.response.attempt) == ("published", 1)
    assert published.record is not None
    assert published.record.attempt == 1


def test_a_client_that_reuses_its_id_after_the_end_gets_a_second_outcome(log: Log) -> None:
    for name in ("a", "b", "c"):
        for body in (chunk(name), last_chunk(name), "[DONE]"):
            log.say(body=body)
    assert [result.response.attempt for result in log.partition.drain()] == [0, 1, 2]


def test_sequence_zero_with_other_bytes_is_another_attempt(log: Log) -> None:
    log.stream(chunk("a"), chunk("a"))
    log.stream(chunk("b"), last_chunk("b"), "[DONE]")
    assert log.outcomes() == ["published"]
    assert log.ended() == ["incomplete(idle_timeout)"]


def test_sequence_zero_with_the_same_bytes_is_a_repeat(log: Log) -> None:
    log.stream(chunk("a"), chunk("a"))
    assert log.say(body=chunk("a"), sequence=0) is SkipReason.DUPLICATE


def test_attempts_that_are_numbered_may_overlap(log: Log) -> None:
    for body in (chunk("a"), last_chunk("a"), "[DONE]"):
        for attempt in (0, 3, 1):
            log.say(body=body, attempt=attempt)
    assert [result.response.attempt for result in log.partition.drain()] == [0, 3, 1]
    assert log.say(body=chunk("a"), attempt=3) is SkipReason.LATE_REPEAT
    assert log.say(body="[DONE]", attempt=7) is SkipReason.ORPHAN_END


def test_what_has_no_identity_belongs_to_the_attempt_seen_last(log: Log) -> None:
    for body in (chunk("a"), "[DONE]", "[DONE]", ERROR):
        log.say(body=body)
    assert log.outcomes() == ["no_stats(stream_without_usage_chunk)"]
    log.say(body=chunk("b"))
    log.say(body="[DONE]")
    assert log.outcomes() == ["no_stats(stream_without_usage_chunk)"]


@pytest.mark.parametrize(
    "retry",
    [
        {"body": {"text": "x", "meta_info": {"id": "g2", "finish_reason": None}}},
        {"body": {"type": "message_start", "message": {"id": "m2"}}},
        {"body": sse(chunk("b")).decode()},
    ],
    ids=["meta information", "inside", "stream"],
)
def test_the_id_of_a_retry_is_found_wherever_it_stands(log: Log, retry: Json) -> None:
    log.stream(chunk("a"), "[DONE]")
    log.outcomes()
    assert log.say(**retry) is None
    assert log.partition.open_requests == 1


def test_each_attempt_takes_the_trace_of_its_own_message(log: Log) -> None:
    for number, name in enumerate(("a", "b"), 1):
        for body in (chunk(name), last_chunk(name), "[DONE]"):
            log.feed(native(body=body), headers=[("traceparent", trace(number).encode())])
    traces = [result.response.context for result in log.partition.drain()]
    assert [context and context.traceparent for context in traces] == [trace(1), trace(2)]


def test_a_request_stays_known_as_long_as_one_attempt_does(log: Log) -> None:
    """The number of an attempt must not depend on when an earlier one was forgotten."""
    log.stream(chunk("a"), ERROR)
    log.say(body=chunk("b"))
    for _ in range(8):
        log.pass_time(1_000)
        log.say(body=chunk("b"))
    log.say(body="[DONE]")
    log.say(body=chunk("c"))
    assert [result.response.attempt for result in log.partition.drain()] == [0, 1]
    log.partition.close_all()
    assert log.one().response.attempt == 2


# Whole responses


def test_a_repeated_whole_response_is_reported_once(log: Log) -> None:
    for value in (native(body=whole()), encode(whole("w"))):
        assert log.feed(value).reason is None
        assert log.feed(value).reason is SkipReason.REPEATED_RESPONSE
    assert log.outcomes() == ["published"] * 2


def test_a_whole_response_does_not_hold_the_start_of_reading_back(log: Log) -> None:
    for number in range(100):
        log.feed(native(f"r{number}", body=whole()))
    checkpoint = log.partition.checkpoint(0)
    assert checkpoint.open == ()
    assert checkpoint.position - checkpoint.start.offset < 32


def test_a_whole_response_finishes_an_open_stream(log: Log) -> None:
    log.say(body=sse(chunk("c1"), chunk("c1")).decode()[:-30], timestamp=log.now)
    log.feed(encode([whole("c1") | {"id": "r1"}]))
    log.say(body=[whole("c1")], endpoint="/v1/chat/completions", timestamp="2026-01-01T00:00:09Z")
    result = log.partition.drain()[-1]
    assert short(result) == "published"
    assert result.record is not None
    assert result.record.endpoint == "/v1/chat/completions"
    assert result.record.completed_at == "2026-01-01T00:00:09.000Z"
    assert result.record.stream_complete


def test_an_empty_whole_response_finishes_an_open_stream_as_incomplete() -> None:
    log = Log()
    log.say(body=chunk())
    log.say(body=[chunk()])
    assert log.outcomes() == ["incomplete(no_terminator)"]


@pytest.mark.parametrize("field", [b"", b"data: "])
def test_the_usage_chunk_after_the_finish_reason_ends_a_stream_of_bare_chunks(
    log: Log, field: bytes
) -> None:
    """The end marker has no id, and until the timeout the record would not be complete."""
    log.feed(field + encode(chunk()))
    log.feed(field + encode(last_chunk() | {"metrics": None}))  # Not after a finish reason.
    log.feed(field + encode(chunk(finish="stop")))
    assert log.outcomes() == []
    log.feed(field + encode(last_chunk()))
    assert [short(result) for result in log.partition.drain()] == ["published"]
    assert log.feed(b"data: [DONE]\n\n").reason is SkipReason.ORPHAN_END
    assert log.feed(field + encode(last_chunk())).reason is SkipReason.LATE_REPEAT
    assert log.ended() == []


def test_the_usage_chunk_ends_no_stream_that_has_an_end_marker(log: Log) -> None:
    for body in (chunk(finish="stop"), last_chunk(), "[DONE]"):
        assert log.outcomes() == []
        assert log.say(body=body) is None
    assert log.outcomes() == ["published"]


# One request id for two calls

CALLS = [
    [chunk(), chunk(finish="stop"), last_chunk(accepted=3)],
    [chunk(), chunk(finish="stop"), last_chunk(accepted=6)],
]


def accepted_of(log: Log) -> list[tuple[int, int | None]]:
    results = log.partition.drain()
    return [
        (
            result.response.attempt,
            None if result.record is None else result.record.num_accepted_draft_tokens,
        )
        for result in results
    ]


@pytest.mark.parametrize("later", [0, 9])
@pytest.mark.parametrize("bare", [True, False])
def test_a_second_call_under_the_same_ids_is_a_new_attempt(
    log: Log, later: int, *, bare: bool
) -> None:
    """Clients reuse their X-Request-Id, of which engines make the id of the body."""
    for number, call in enumerate(CALLS):
        for body in call:
            created = body | {"created": 1_767_225_600 + later * number}
            log.feed(encode(created) if bare else native(body=created))
        if not bare:
            log.say(body="[DONE]")
    log.partition.close_all()
    assert accepted_of(log) == [(0, 3), (1, 6)]


def test_repeats_of_a_finished_stream_stay_repeats(log: Log) -> None:
    events = [*CALLS[0], "[DONE]"]
    for body in events:
        log.say(body=body)
    for body in [*events, *events[::-1]]:
        assert log.say(body=body, timestamp="2026-01-01T00:00:07Z") is SkipReason.LATE_REPEAT
    assert accepted_of(log) == [(0, 3)]
    assert log.ended() == []


def test_a_late_result_of_the_first_call_does_not_become_the_second_ones(log: Log) -> None:
    for body in [*CALLS[0], "[DONE]", CALLS[1][0] | {"created": 1_767_225_601}]:
        log.say(body=body)
    assert log.say(body=CALLS[0][2]) is SkipReason.LATE_REPEAT
    for body in [*CALLS[1][1:], "[DONE]"]:
        log.say(body=body)
    assert accepted_of(log) == [(0, 3), (1, 6)]


def test_a_second_call_begins_where_no_end_marker_is_logged(log: Log) -> None:
    for body in CALLS[0]:
        log.say(body=body)
    for body in CALLS[1]:
        log.say(body=body | {"created": 1_767_225_609})
    assert accepted_of(log) == [(0, 3)]
    log.partition.close_all()
    assert accepted_of(log) == [(1, 6)]


def test_with_more_results_than_are_remembered_a_late_one_is_a_repeat(log: Log) -> None:
    for created in range(20):
        log.say(body=chunk(finish="stop") | {"created": created})
    log.say(body="[DONE]")
    assert log.say(body=last_chunk()) is SkipReason.LATE_REPEAT


# Segments


def test_segments_cut_anywhere_and_out_of_order_are_joined(log: Log) -> None:
    stream = sse(chunk(), {"choices": [], "x": "🍏"}, last_chunk(), "[DONE]")
    pieces = [stream[at : at + 37] for at in range(0, len(stream), 37)]
    for sequence in (1, 0, *range(len(pieces) - 1, 1, -1)):
        log.feed(native_segment(pieces[sequence], sequence=sequence))
    assert log.outcomes() == ["published"]


def test_a_json_body_in_segments_ends_with_its_final_one(log: Log) -> None:
    body = encode(whole())
    log.feed(native_segment(body[:50]))
    log.feed(native_segment(body[50:], final=True))
    assert log.outcomes() == ["published"]


@pytest.mark.parametrize("final", [True, False])
def test_segments_above_the_cap_are_dropped_and_that_is_said(final: bool) -> None:
    log = Log(Limits(idle_timeout_ms=2_000, duplicate_window_ms=1_000, max_segment_bytes=1_000))
    for piece in (b"data: ", b"x" * 400, b"x" * 400, b"x" * 400):
        log.feed(native_segment(piece))
    log.feed(native_segment(b"x", final=final))
    assert log.ended() == ["incomplete(segment_overflow)"]


def test_a_whole_stream_above_the_cap_in_one_event_need_not_be_held() -> None:
    log = Log(Limits(idle_timeout_ms=2_000, duplicate_window_ms=1_000, max_segment_bytes=1_000))
    text = sse(*[chunk() for _ in range(50)], last_chunk(), "[DONE]").decode()
    assert len(text) > 5_000
    assert log.say(body=text) is None
    assert log.outcomes() == ["published"]


# Time and bounds


def test_a_producer_five_minutes_ahead_closes_nothing(log: Log) -> None:
    log.stream(chunk(), chunk())
    ahead = log.now + 300_000
    for number in range(400):
        at = ahead if number % 4 == 0 else log.now
        log.partition.feed(message(None, log.offset, at))
        log.offset += 1
    assert log.partition.open_requests == 1
    log.stream(last_chunk(), "[DONE]", first=2)
    assert log.outcomes() == ["published"]


def test_a_request_is_closed_when_nothing_new_comes(log: Log) -> None:
    log.say(body=chunk())
    log.pass_time(1_900)
    assert log.partition.open_requests == 1
    log.say(body=chunk())
    log.pass_time(1_900)
    assert log.partition.open_requests == 1
    log.pass_time(300)
    assert log.outcomes() == ["incomplete(idle_timeout)"]


@pytest.mark.parametrize("sequenced", [False, True])
@pytest.mark.parametrize("between", [400, 1_000, 3_000])
def test_a_quiet_partition_closes_no_stream_that_goes_on(between: int, sequenced: bool) -> None:
    """A block of its messages lasts longer than any timeout, and ends within streams."""
    log = Log()
    for number in range(100):
        for sequence, body in enumerate((chunk(), chunk(), chunk(), last_chunk(), "[DONE]")):
            log.say(f"r{number}", body=body, **({"sequence": sequence} if sequenced else {}))
            log.now += 1
        log.now += between
    assert log.ended() == ["published"] * 100


def test_a_quiet_partition_knows_repeats_of_the_block_before(log: Log) -> None:
    log.stream(chunk(), last_chunk(), "[DONE]")
    for _ in range(31):
        log.now += 10_000
        log.feed(None)
    assert log.say(body=last_chunk(), sequence=1) is SkipReason.LATE_REPEAT


def test_a_closed_request_is_known_for_a_while_and_then_forgotten(log: Log) -> None:
    log.say(body=chunk())
    log.pass_time(2_500)
    assert log.outcomes() == ["incomplete(idle_timeout)"]
    assert log.say(body=chunk()) is SkipReason.LATE_REPEAT
    log.pass_time(3_500)
    assert log.say(body=chunk()) is None
    assert log.partition.open_requests == 1


def test_silence_closes_what_is_open_by_its_own_reason(log: Log) -> None:
    log.stream(chunk(), last_chunk())
    log.stream(chunk(), request_id="r2")
    log.partition.close_silent()
    first, second = log.partition.drain()
    assert first.record is not None
    assert first.record.incomplete_reason == IncompleteReason.PARTITION_SILENT
    assert short(second) == "incomplete(partition_silent)"
    assert log.say(body="[DONE]", sequence=2) is SkipReason.LATE_REPEAT


def test_above_the_bound_the_longest_idle_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "open_budget", lambda _: (40, 9))
    log = Log()
    for number in range(5):
        log.say(f"r{number}", body=chunk())
        log.say("r0", body=chunk())
    result = log.one()
    assert short(result) == "incomplete(bound)"
    assert result.response.request_id == "r1"
    assert log.partition.open_requests == 4


def test_a_request_that_began_too_far_behind_is_closed_once() -> None:
    log = Log(Limits(idle_timeout_ms=2_000, duplicate_window_ms=1_000, max_reread=500))
    for sequence in range(20):
        log.say(body=chunk(), sequence=sequence)
        log.pass_time(10)
    assert log.outcomes() == ["incomplete(too_long)"]
    assert log.say(body=last_chunk(), sequence=20) is SkipReason.LATE_REPEAT
    checkpoint = log.partition.checkpoint(0)
    assert checkpoint.position - checkpoint.start.offset < 600


def test_a_million_unique_ids_leave_nothing_behind() -> None:
    log = Log()
    known = log.partition._reassembler.index
    free_bits = known.free_bits
    for number in range(3_000):
        log.say(f"r{number}", body=chunk(), final=number % 2 == 0)
        log.now += 10
    assert len(known.latest) < 500
    log.pass_time(5_000)
    assert (len(known.latest), len(known._idle), log.partition.open_requests) == (0, 0, 0)
    assert known.start is None
    assert (len(known._by_begin), len(known._numbered)) == (0, 0)
    assert known.free_bits == free_bits


def test_one_id_for_everything_is_bounded_and_its_cost_does_not_grow() -> None:
    """A gateway without ids may write the same one into every event."""
    log = Log(Limits(idle_timeout_ms=2_000, duplicate_window_ms=1_000, max_reread=2_000))
    for number in range(3_000):
        log.say("-", body=chunk(f"c{number}"))
        log.say("-", body="[DONE]")
        log.now += 1
    known = log.partition._reassembler.index
    assert len(known.latest) == 1
    assert len(known._by_begin) <= 1_100
    assert len(known._numbered) <= 1_100
    attempts = [result.response.attempt for result in log.partition.drain()]
    assert attempts == list(range(3_000))


def test_a_finished_request_keeps_little(log: Log) -> None:
    log.say(body=last_chunk() | {"id": "c" * 2000}, labels={"a": "b"}, sequence=0)
    log.say(body="[DONE]", sequence=1)
    [attempt] = log.partition._reassembler.index.latest.values()
    assert attempt.facts.stats is None
    assert (attempt.context, attempt.seen, attempt.segments) == (None, None, None)


def test_a_kafka_timestamp_from_a_broken_clock_is_no_time_of_an_event() -> None:
    """Beyond the year 9999 there is no way to write it, and writing it would raise."""
    for stamp in (2**62, 2**63 - 1, 253_402_300_800_000):
        partition = pipeline(LIMITS).partition(TOPIC, 0, 0)
        partition.feed(message(native(body=whole()), 0, stamp - message(b"").timestamp_ms))
        [result] = partition.drain()
        assert result.outcome is RequestOutcome.PUBLISHED
        assert result.record is not None
        assert result.record.completed_at is None


def test_whole_responses_soon_after_a_restart_are_counted_as_possible_repeats() -> None:
    """Their originals may lie before the restart, which has forgotten them."""
    log = Log()
    assert log.say("before", body=whole("before")) is None
    assert log.partition.possible_repeats == 0
    checkpoint = log.partition.checkpoint(1)
    log.partition = pipeline(LIMITS).resume(TOPIC, 0, checkpoint)
    log.offset = checkpoint.position
    log.partition.go_live()
    assert log.say("soon", body=whole("soon")) is None
    assert log.partition.possible_repeats == 1
    log.pass_time(LIMITS.duplicate_window_ms + 1_000)
    assert log.say("later", body=whole("later")) is None
    assert log.partition.possible_repeats == 1
