"""The members of an event: what is read from JSON of another type, and what is odd."""

from typing import Any

import pytest
from msgspec import Raw, json

from consumer.core.bodies.json_text import decode_members
from consumer.core.envelopes.members import Members, read_members
from schemas import OddMember
from schemas.record import MAX_COUNT, MAX_LABELS, MAX_TEXT
from tests.unit.core.made import BEGIN_MS


def read(text: bytes) -> tuple[Members, list[OddMember]]:
    return read_members(decode_members(text))


@pytest.mark.parametrize(
    ("name", "value", "meaning"),
    [
        ("request_id", "r1", "r1"),
        ("request_id", 7, "7"),
        ("request_id", -7, "-7"),
        ("sequence", 7, 7),
        ("sequence", "7", 7),
        ("sequence", 7.0, 7),
        ("sequence", "7.0", 7),
        ("sequence", MAX_COUNT, MAX_COUNT),
        ("attempt", "1", 1),
        ("final", True, True),
        ("final", "true", True),
        ("final", "True", True),
        ("final", 1, True),
        ("final", "1", True),
        ("final", "false", False),
        ("final", 0, False),
        ("status", 200, 200),
        ("status", "200", 200),
        ("status", 503.0, 503),
        ("timestamp", BEGIN_MS, BEGIN_MS),
        ("timestamp", str(BEGIN_MS), BEGIN_MS),
        ("timestamp", BEGIN_MS / 1000, BEGIN_MS),
        ("timestamp", BEGIN_MS * 1_000_000, BEGIN_MS),
        ("timestamp", 1.7672256e18, BEGIN_MS),
        ("timestamp", "2026-01-01 00:00:00,000", BEGIN_MS),
        ("model", "m", "m"),
        ("labels", {"a": "b"}, {"a": "b"}),
        ("labels", {"a": 7, "b": True, "c": 1.5}, {"a": "7", "b": "true", "c": "1.5"}),
        ("labels", {"a": None, "b": ""}, {"b": ""}),
    ],
)
def test_a_value_of_another_type_with_the_same_meaning_is_read(
    name: str, value: Any, meaning: Any
) -> None:
    members, odd = read(json.encode({name: value}))
    assert getattr(members, name) == meaning
    assert not odd


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("sequence", "attempt") for value in (-1, 1.5, True, "one")),
        ("sequence", MAX_COUNT + 1),
        ("sequence", 10**30),
        ("attempt", [1]),
        ("final", "yes"),
        ("final", 2),
        ("status", "200 OK"),
        ("status", "HTTP/1.1 200 OK"),
        ("status", -3),
        ("status", 1000),
        ("timestamp", "yesterday"),
        ("timestamp", 12),
        ("timestamp", False),
        ("timestamp", [BEGIN_MS]),
        ("timestamp", {"$date": BEGIN_MS}),
        ("timestamp", "1970-01-01T00:00:00Z"),
        *((name, 7) for name in ("model", "instance", "endpoint")),
        ("model", ["m"]),
        ("instance", {"name": "i"}),
        ("labels", "a"),
        ("labels", ["a"]),
    ],
)
def test_any_other_value_is_ignored_and_odd(name: str, value: Any) -> None:
    members, odd = read(json.encode({name: value}))
    assert getattr(members, name) is None
    assert odd == [name]


@pytest.mark.parametrize("value", [None, ""])
def test_null_and_empty_text_leave_a_member_unset(value: Any) -> None:
    assert read(json.encode(dict.fromkeys(OddMember, value) | {"labels": None})) == (Members(), [])


@pytest.mark.parametrize("value", [0, -1, 0.0, "0", "-1", ""])
def test_zero_and_minus_one_leave_the_time_unset(value: Any) -> None:
    assert read(json.encode({"timestamp": value})) == (Members(), [])


def test_an_odd_label_costs_no_other_label() -> None:
    members, odd = read(b'{"labels":{"a":"b","c":{"d":1},"e":2}}')
    assert members.labels == {"a": "b", "e": "2"}
    assert odd == ["labels"]


def test_an_empty_array_stands_for_no_labels() -> None:
    assert read(b'{"labels":[]}') == (Members(), [])


def test_labels_are_no_more_and_no_longer_than_a_record_keeps() -> None:
    labels = {str(number): "x" * 2 * MAX_TEXT for number in range(2 * MAX_LABELS)}
    members, _ = read(json.encode({"labels": labels}))
    assert members.labels is not None
    assert len(members.labels) == MAX_LABELS
    assert set(map(len, members.labels.values())) == {MAX_TEXT}


@pytest.mark.parametrize("value", [b"1.5", b"true", b"null", b'["r1"]', b'{"id":"r1"}', b"9" * 65])
def test_a_request_id_is_text_or_an_integer(value: bytes) -> None:
    assert read(b'{"request_id":%b}' % value) == (Members(), [])


def test_a_request_id_keeps_all_its_digits() -> None:
    members, _ = read(b'{"request_id":340282366920938463463374607431768211455}')
    assert members.request_id == "340282366920938463463374607431768211455"


@pytest.mark.parametrize("text", [b'"m\\ud800"', b'"m\x01"', b'"m\xff"'])
def test_text_that_is_not_quite_json_can_be_written(text: bytes) -> None:
    members, odd = read_members({"model": Raw(text), "labels": Raw(b'{"a":%b}' % text)})
    assert json.encode(members)
    assert not odd
