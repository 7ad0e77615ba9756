"""Texts of more values or lines than a response can have are refused before they are read."""

import json
import time
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.core.bodies import density
from consumer.core.bodies.density import has_dense_lines, has_dense_objects, has_dense_values
from consumer.core.message import CapturedMessage
from consumer.core.partition import MessageResult, Partition
from consumer.core.reassembly.limits import Limits
from schemas import BadPayloadReason, MessageOutcome, RequestOutcome
from tests.unit.core.made import chunk, encode, last_chunk, pipeline, sse, whole

MIB = 1 << 20

documents = st.recursive(
    st.none() | st.integers() | st.text(alphabet='{}[],:"\\ a\n\u00e9', max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=40,
)


def counted(value: Any, kind: type) -> int:
    """Return how many values of a type a parsed document has."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, kind) + sum(counted(one, kind) for one in inner)


@settings(deadline=None, max_examples=300)
@given(value=documents, indent=st.none() | st.just(1), ascii_only=st.booleans())
def test_structure_is_counted_without_what_strings_hold(
    value: Any, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    structure = density._structure(text)
    assert structure.count(b"{") == counted(value, dict)
    assert structure.count(b"[") == counted(value, list)


@pytest.mark.parametrize("content", ["{", "[", ",", "}{", '{"a": 1}, ', "\\", '\\"{', "{\n"])
def test_a_model_in_a_loop_of_punctuation_still_has_its_record(content: str) -> None:
    body = whole()
    body["choices"][0]["message"] = {"role": "assistant", "content": content * 20_000}
    assert outcomes(encode(body)) == [RequestOutcome.PUBLISHED]
    event = {"request_id": "r", "body": body}
    assert outcomes(encode(event)) == [RequestOutcome.PUBLISHED]
    chunks = [chunk() | {"choices": [{"index": 0, "delta": {"content": content * 3_000}}]}] * 3
    assert outcomes(sse(*chunks, last_chunk(), "[DONE]")) == [RequestOutcome.PUBLISHED]


def test_log_probabilities_are_not_too_dense() -> None:
    body = whole()
    token = {"token": "a", "logprob": -1, "bytes": None}
    body["choices"][0]["logprobs"] = {"content": [token | {"top_logprobs": [token] * 20}] * 500}
    text = json.dumps(body, separators=(",", ":")).encode()
    assert not has_dense_objects(text)
    assert outcomes(text) == [RequestOutcome.PUBLISHED]
    odd = text.replace(b'"logprob":-1,', b'"logprob":-Infinity,')
    assert not has_dense_values(odd)
    assert outcomes(odd) == [RequestOutcome.PUBLISHED]


def test_short_events_of_a_stream_are_not_too_dense() -> None:
    stream = b'data: {"choices":[{"text":"a"}]}\n\n' * 1_000 + b": ping\n\n" * 300
    assert not has_dense_lines(stream)


def outcomes(value: bytes) -> list[RequestOutcome]:
    partition = pipeline().partition("t", 0, 0)
    result = partition.feed(CapturedMessage(the_value=value))
    assert result.outcome is MessageOutcome.ACCEPTED, result
    partition.close_all()
    return [each.outcome for each in partition.drain()]


def filled(begin: bytes, unit: bytes, end: bytes, size: int) -> bytes:
    return begin + unit * ((size - len(begin) - len(end)) // len(unit)) + end


HEAD = b'{"object":"chat.completion","choices":['
HOSTILE = {
    "empty choices": (HEAD, b"{},", b"{}]}", BadPayloadReason.TOO_DENSE),
    "empty choices, NaN": (
        b'{"z":NaN,' + HEAD[1:],
        b"{},",
        b"{}]}",
        BadPayloadReason.TOO_DENSE,
    ),
    "numbers as choices": (HEAD, b"0,", b"0]}", BadPayloadReason.TOO_DENSE),
    "many choices": (HEAD, b'{"a":1234567890},', b"{}]}", BadPayloadReason.TOO_MANY_CHOICES),
    "array of numbers": (b"[", b"0,", b"0]", BadPayloadReason.TOO_MANY_ENTRIES),
    "array of objects": (b"[", b"{},", b"{}]", BadPayloadReason.TOO_MANY_ENTRIES),
    "lines of objects": (b"", b"{}\n", b"", BadPayloadReason.TOO_MANY_ENTRIES),
    "documents in one line": (b"", b'""', b"", BadPayloadReason.TOO_MANY_ENTRIES),
    "empty data lines": (b"", b"data:\n", b"\n", BadPayloadReason.TOO_DENSE),
    "empty events": (b"", b"data: {}\n\n", b"", BadPayloadReason.TOO_DENSE),
    "comments": (b"", b":\n", b"", BadPayloadReason.TOO_DENSE),
    "comments, CR": (b"data: {}\r\r", b":\r", b"", BadPayloadReason.TOO_DENSE),
    "log records": (
        b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[',
        b"{},",
        b"{}]}]}]}",
        BadPayloadReason.TOO_DENSE,
    ),
    "outputs": (b'{"outputs":[', b"{},", b"{}]}", BadPayloadReason.TOO_DENSE),
    "a wrapped array": (b'{"message":[', b"{},", b"{}]}", BadPayloadReason.TOO_DENSE),
    "objects in objects": (b"", b'{"a":', b"", BadPayloadReason.TOO_DENSE),
    "Protobuf records": (
        b"\x0a\xf4\xff\x3f\x12\xf0\xff\x3f",
        b"\x12\x00",
        b"",
        BadPayloadReason.TOO_MANY_ENTRIES,
    ),
    "zstd frames": (b"", zstandard.compress(b""), b"", BadPayloadReason.CORRUPT_ENCODING),
}


def fed(value: bytes) -> tuple[MessageResult, float]:
    """Return what becomes of a message, and the seconds that it takes."""
    partition: Partition = pipeline().partition("t", 0, 0)
    begin = time.process_time()
    result = partition.feed(CapturedMessage(the_value=value))
    return result, time.process_time() - begin


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_megabyte_is_refused_by_name_in_time(name: str) -> None:
    begin, unit, end, reason = HOSTILE[name]
    result, seconds = fed(filled(begin, unit, end, MIB))
    assert result.reason is reason
    assert seconds < 0.25


@pytest.mark.parametrize("name", [name for name in HOSTILE if name != "zstd frames"])
def test_hostile_megabytes_that_were_kilobytes_leave_the_loop_its_second(name: str) -> None:
    begin, unit, end, _ = HOSTILE[name]
    bomb = zstandard.compress(filled(begin, unit, end, 16 * MIB - 100))
    result, seconds = fed(bomb)
    assert result.outcome is MessageOutcome.BAD_PAYLOAD
    assert seconds < 1


def test_short_log_records_beside_a_response_do_not_lose_it() -> None:
    lines = [b'{"level":"info","msg":"ready"}'] * 2_000 + [encode(whole())]
    partition = pipeline().partition("t", 0, 0)
    partition.feed(CapturedMessage(the_value=b"\n".join(lines)))
    assert [each.outcome for each in partition.drain()] == [RequestOutcome.PUBLISHED]


def test_a_small_message_of_many_entries_is_refused_since_none_can_be_an_event() -> None:
    result, _ = fed(b'{"a":1}\n' * 500)
    assert result.reason is BadPayloadReason.TOO_MANY_ENTRIES


def test_the_setting_bounds_the_choices_of_a_response() -> None:
    core = pipeline(Limits(max_choices=3))
    for count, reason in ((3, None), (4, BadPayloadReason.TOO_MANY_CHOICES)):
        body = whole() | {"choices": [{"index": number} for number in range(count)]}
        for value in (encode(body), encode({"request_id": "r", "body": body})):
            result = core.partition("t", 0, 0).feed(CapturedMessage(the_value=value))
            assert result.reason is reason
