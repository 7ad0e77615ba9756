"""Several JSON documents in one value, split without reading what is in them."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.core.bodies.entries import split_array, split_documents
from schemas import BadPayloadReason, IncompleteReason

LIMIT = 100
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def parsed(entries: Any) -> list[Any]:
    assert isinstance(entries, list)
    return [json.loads(entry) for entry in entries]


@settings(deadline=None, max_examples=200)
@given(
    documents=st.lists(st.dictionaries(st.text(), JSON, max_size=3) | st.lists(JSON, max_size=3)),
    indent=st.sampled_from([None, 2]),
    between=st.sampled_from(["\n", "\r\n", "\n\n", " ", "\n \t"]),
)
def test_documents_come_apart_however_they_are_printed(
    documents: list[Any], indent: int | None, between: str
) -> None:
    text = between.join(json.dumps(one, indent=indent) for one in documents).encode()
    assert parsed(split_documents(text, LIMIT)) == documents


@settings(deadline=None, max_examples=200)
@given(entries=st.lists(JSON, max_size=5), indent=st.sampled_from([None, 2]))
def test_an_array_comes_apart(entries: list[Any], indent: int | None) -> None:
    text = json.dumps(entries, indent=indent).encode()
    assert parsed(split_array(text, LIMIT)) == entries


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        (b'{"a":1}\n{"b":\n{"c":3}', [b'{"a":1}', b'{"b":', b'{"c":3}']),
        (b'{"a":1}\n[DONE]\n', [b'{"a":1}', b"[DONE]"]),
        (b'{"a":NaN}\n{"b":2}', [b'{"a":NaN}', b'{"b":2}']),
        (b'{"a":1}\ndata: x\n', [b'{"a":1}', b"data: x"]),
        (b'{\n"a":NaN\n}\n{\n"b":2\n}', [b'{\n"a":NaN\n}', b'{\n"b":2\n}']),
        (b"{]", [b"{]"]),
    ],
)
def test_damage_costs_one_document(text: bytes, entries: list[bytes]) -> None:
    assert split_documents(text, LIMIT) == entries


def test_what_the_strict_decoder_refuses_does_not_cost_the_array() -> None:
    assert parsed(split_array(b'[{"a":NaN},{"b":2}]', LIMIT)) == [{"a": None}, {"b": 2}]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'[{"a":1},{"b"', IncompleteReason.TRUNCATED),
        (b"[1,]", BadPayloadReason.INVALID_JSON),
        (b"[" * 2_000, BadPayloadReason.TOO_DEEP),
        (b"[" * 100_000, BadPayloadReason.TOO_DENSE),
    ],
)
def test_an_array_that_cannot_be_read_says_why(
    text: bytes, reason: BadPayloadReason | IncompleteReason
) -> None:
    assert split_array(text, LIMIT) is reason


@pytest.mark.parametrize("entry", [b"1", b"{}", b"NaN"])
def test_entries_above_the_limit_are_refused(entry: bytes) -> None:
    too_many = BadPayloadReason.TOO_MANY_ENTRIES
    assert len(split_array(b"[" + b",".join([entry] * LIMIT) + b"]", LIMIT)) == LIMIT
    assert split_array(b"[" + b",".join([entry] * (LIMIT + 1)) + b"]", LIMIT) is too_many
    assert len(split_documents(b"\n".join([entry] * LIMIT), LIMIT)) == LIMIT
    assert split_documents(b"\n".join([entry] * (LIMIT + 1)), LIMIT) is too_many
