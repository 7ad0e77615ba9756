"""Inputs that were found to stop, starve or fill the service."""

import time

import pytest
import zstandard

from consumer.core.adapters.registry import load_adapters
from consumer.core.bodies import facts
from consumer.core.dead_letters import letter_of_message, readable_headers
from consumer.core.message import CapturedMessage, Headers
from consumer.core.partition import Options, Partition, Pipeline
from consumer.core.reassembly.limits import Limits
from consumer.core.response_event import Event
from schemas import BadPayloadReason, MessageOutcome
from tests.unit.core.made import chunk, encode, native, opened, pipeline


class Unreadable(CapturedMessage, frozen=True):
    """A message with a header whose name the client cannot decode."""

    def headers(self) -> Headers | None:
        raise SystemError("returned a result with an exception set")


@pytest.fixture
def partition() -> Partition:
    return Pipeline(Options(), load_adapters()).partition("t", 0, 0)


def test_headers_that_cannot_be_read_make_a_bad_payload_and_a_letter_without_them(
    partition: Partition,
) -> None:
    message = Unreadable(the_value=b"x")
    result = partition.feed(message)
    assert result.reason is BadPayloadReason.INVALID_HEADERS
    reason = str(result.reason)
    headers = readable_headers(message, reason)
    outcome = MessageOutcome.BAD_PAYLOAD
    letter = letter_of_message(message, outcome, reason, None, partition.origin, headers)
    assert letter.headers is None


def test_a_native_event_needs_no_headers(partition: Partition) -> None:
    body = b'{"id":"c","object":"chat.completion.chunk","choices":[{"index":0}]}'
    message = Unreadable(the_value=b'{"request_id":"r","body":' + body + b"}")
    assert partition.feed(message).outcome is MessageOutcome.ACCEPTED


@pytest.mark.parametrize("line", [b"{a\n", b"data:x\n\n"])
def test_a_small_message_that_inflates_to_millions_of_broken_chunks_is_given_up(
    partition: Partition, line: bytes
) -> None:
    bomb = zstandard.compress(b'{"id":"c","choices":[]}\n' + line * 700_000)
    begin = time.process_time()
    partition.feed(CapturedMessage(the_value=bomb))
    assert time.process_time() - begin < 5


def test_the_id_of_a_bare_chunk_is_bounded_since_it_is_kept(partition: Partition) -> None:
    chunk = b'{"object":"chat.completion.chunk","choices":[{}],"id":"' + b"x" * 5000 + b'"}'
    assert partition.feed(CapturedMessage(the_value=chunk)).reason is BadPayloadReason.INVALID_EVENT


def test_a_trace_of_any_length_does_not_make_a_record_too_large(partition: Partition) -> None:
    whole = b'{"id":"c","object":"chat.completion","choices":[{"finish_reason":"stop"}]}'
    message = CapturedMessage(the_value=whole, the_headers=[("traceparent", b"\xff" * 400_000)])
    partition.feed(message)
    (result,) = partition.drain()
    assert result.response.context is None


def test_addresses_lose_user_info_and_query(partition: Partition) -> None:
    event = (
        b'{"request_id":"r","final":true,"instance":"http://user:secret@host/","endpoint":"/v1?key=s",'
        b'"body":{"id":"c","object":"chat.completion","choices":[{"finish_reason":"stop"}]}}'
    )
    partition.feed(CapturedMessage(the_value=event))
    (result,) = partition.drain()
    context = result.response.context
    assert context is not None
    assert (context.instance, context.endpoint) == ("http://host/", "/v1")


def test_members_that_are_opened_in_vain_count_as_entries() -> None:
    """Each of many entries may have eight members that look like wrappers, on three levels."""
    names = ("message", "log", "body", "payload", "value", "data", "response", "event")
    entries = b"[%b]" % b",".join([encode(dict.fromkeys(names, '{"a":1}'))] * 50)
    feed = pipeline(Limits(max_entries=100)).partition("t", 0, 0).feed
    assert feed(CapturedMessage(the_value=entries)).reason is BadPayloadReason.TOO_MANY_ENTRIES


def test_log_records_that_are_opened_in_vain_count_as_entries() -> None:
    log_record = {"body": {"stringValue": encode({"message": '{"a":1}', "log": "{}"}).decode()}}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [log_record] * 50}]}]}
    feed = pipeline(Limits(max_entries=100)).partition("t", 0, 0).feed
    result = feed(CapturedMessage(the_value=encode(logs)))
    assert result.reason is BadPayloadReason.TOO_MANY_ENTRIES


def test_no_more_entries_of_an_array_are_read_than_any_response_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(facts, "MAX_EVENTS", 50)
    found = opened(native(body=[chunk()] * 20))
    assert isinstance(found, Event)
    assert found.facts is not None
    assert (found.facts.documents, found.facts.damaged) == (10, True)
