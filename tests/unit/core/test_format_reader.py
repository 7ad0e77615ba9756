"""Rows of the table of formats: how their paths find the members of an entry."""

import gzip
from base64 import b64encode
from typing import Any

import pytest

from consumer.core.bodies.json_text import decode_members
from consumer.core.envelopes.format_reader import FormatReader, FormatTable
from consumer.core.envelopes.formats import Format, Skip
from consumer.core.envelopes.member_paths import EventMembers, parse_path
from consumer.core.envelopes.native import NativeEnvelope
from consumer.core.response_event import BadEvent, Event, EventKind, Opened
from schemas import BadPayloadReason, SkipReason
from tests.unit.core.made import BEGIN_MS, Json, body_reader, chunk, encode, last_chunk, sse, whole

BODIES = body_reader()
STREAM = sse(chunk("s"), last_chunk("s"), "[DONE]").decode()


def row(**places: Any) -> Format:
    return Format(
        **{"name": "row", "title": "row", "signature": {"answer": "any"}, "body": ("answer",)}
        | places
    )


def reader(form: Format) -> FormatReader:
    return FormatReader(form, BODIES, NativeEnvelope(BODIES), 1 << 20)


def opened(form: Format, entry: Json) -> list[Opened]:
    value = encode(entry)
    return reader(form).open(EventMembers(decode_members(value)), value, 10)


def event(form: Format, entry: Json) -> Event:
    (found,) = opened(form, entry)
    assert isinstance(found, Event), found
    return found


# Paths


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.b", b"1"),
        ("a.c", b"2"),
        ("flat.name.x", b"3"),
        ("outer.in.ner", b"4"),
        ("list.1.x", b"6"),
        ("text.x", b"7"),
        ("a", b'{"b":1,"c":2}'),
        ("a.b.c", None),
        ("null", None),
        ("list.2.x", None),
        ("list.x", None),
        ("", None),
    ],
)
def test_a_path_finds_a_member(path: str, expected: bytes | None) -> None:
    members = EventMembers(
        decode_members(
            b'{"a":{"b":1,"c":2},"flat.name.x":3,"outer":{"in.ner":4},"list":[{"x":5},{"x":6}],'
            b'"text":"{\\"x\\":7}","null":null}'
        )
    )
    found = members.at(parse_path(path))
    assert (None if found is None else bytes(found)) == expected


def test_of_two_members_that_a_path_may_mean_the_shorter_first_name_counts() -> None:
    members = EventMembers(decode_members(b'{"a.b":1,"a":{"b":2}}'))
    assert bytes(members.at(("a", "b")) or b"") == b"2"


def test_the_first_path_that_exists_counts() -> None:
    form = row(request_id=("missing", "null", "second", "third"))
    assert (
        event(form, {"answer": whole(), "null": None, "second": "b", "third": "c"}).request_id
        == "b"
    )


# Bodies


@pytest.mark.parametrize(
    ("answer", "places"),
    [
        (whole("w"), {}),
        (encode(whole("w")).decode(), {}),
        (encode(encode(whole("w")).decode()).decode(), {}),  # Encoded twice.
        (STREAM, {}),
        (b64encode(STREAM.encode()).decode(), {"body": (), "body_base64": ("answer",)}),
        (
            b64encode(gzip.compress(STREAM.encode())).decode(),
            {"body": (), "body_base64": ("answer",)},
        ),
    ],
)
def test_a_body_of_any_kind_is_read(answer: Any, places: dict[str, Any]) -> None:
    found = event(row(**places), {"answer": answer})
    assert found.kind is EventKind.WHOLE
    assert found.facts is not None
    assert found.facts.stats is not None


@pytest.mark.parametrize("mark", [True, "true", "BASE64", "base64"])
def test_a_mark_says_that_the_body_is_base64(mark: Any) -> None:
    entry = {"answer": b64encode(encode(whole("w"))).decode(), "encoding": mark}
    assert event(row(base64_if="encoding"), entry).request_id == "w"


@pytest.mark.parametrize("mark", [False, "JSON", None])
def test_without_the_mark_the_body_is_text(mark: Any) -> None:
    entry = {"answer": encode(whole("w")).decode(), "encoding": mark}
    assert event(row(base64_if="encoding"), entry).request_id == "w"


def test_what_is_not_base64_is_refused() -> None:
    (found,) = opened(row(body=(), body_base64=("answer",)), {"answer": "*"})
    assert isinstance(found, BadEvent)
    assert found.reason is BadPayloadReason.INVALID_BASE64


# Members


def test_the_members_of_an_entry_are_read_from_their_paths() -> None:
    form = row(
        request_id=("id",),
        model=("m",),
        endpoint=("path",),
        instance=("host",),
        status=("code",),
        timestamp=("ts",),
        labels={"team": "meta.team"},
    )
    found = event(
        form,
        {
            "answer": whole(),
            "id": 7,
            "m": "llama",
            "path": "/v1/chat/completions?key=x",
            "host": "http://user:pass@pod-1",
            "code": "200",
            "ts": BEGIN_MS / 1000,
            "meta": {"team": "a"},
        },
    )
    assert (found.request_id, found.time, found.failed) == ("7", BEGIN_MS, False)
    assert found.context is not None
    assert found.context.model == "llama"
    assert found.context.endpoint == "/v1/chat/completions"
    assert found.context.instance == "http://pod-1"
    assert found.context.labels == {"team": "a"}


@pytest.mark.parametrize("code", [500, "429"])
def test_the_status_of_an_error_makes_any_body_a_failure(code: Any) -> None:
    assert event(row(status=("code",)), {"answer": "Bad gateway", "code": code}).failed


def test_an_odd_member_is_ignored_and_named() -> None:
    found = event(row(status=("code",)), {"answer": whole(), "code": "ok"})
    assert list(found.odd) == ["status"]


def test_without_a_request_id_that_of_the_body_counts() -> None:
    assert event(row(request_id=("id",)), {"answer": whole("w")}).request_id == "w"


@pytest.mark.parametrize("value", ["request", True, 3])
def test_an_entry_that_is_not_a_response_is_skipped(value: Any) -> None:
    text = value if isinstance(value, str) else encode(value).decode()
    skip = Skip(path="kind", values=(text,), reason=SkipReason.REQUEST_EVENT)
    assert opened(row(skips=(skip,)), {"answer": {}, "kind": value}) == [SkipReason.REQUEST_EVENT]


# Parts of a response


def test_an_entry_may_be_a_part_of_a_response() -> None:
    form = row(whole=False, request_id=("id",), sequence=("n",), final=("last",))
    found = event(form, {"answer": chunk("c"), "id": "r", "n": "3", "last": True})
    assert (found.kind, found.request_id) == (EventKind.CHUNK, "r")
    assert (found.sequence, found.final) == (3, True)


def test_a_part_without_a_request_id_has_that_of_its_chunk() -> None:
    found = event(row(whole=False, sequence=("n",)), {"answer": chunk("c"), "n": 3})
    assert (found.kind, found.request_id, found.sequence) == (EventKind.CHUNK, "c", 3)


def test_a_part_that_says_nothing_is_left_to_other_formats() -> None:
    form = row(whole=False, request_id=("id",), signature={"id": "any"})
    assert opened(form, {"id": "r"}) == []


# Entries


def test_entries_in_an_array_are_events_with_the_members_around_it() -> None:
    form = row(
        entries="events", request_id=("id",), model=("model",), signature={"events": "array"}
    )
    found = opened(
        form,
        {
            "model": "m",
            "events": [{"answer": whole(), "id": "a"}, 7, {"answer": whole(), "id": "b"}],
        },
    )
    assert [one.request_id for one in found if isinstance(one, Event)] == ["a", "b"]
    assert isinstance(found[1], BadEvent)
    assert isinstance(found[0], Event)
    assert found[0].context is not None
    assert found[0].context.model == "m"


def test_too_many_entries_are_refused() -> None:
    form = row(entries="events", signature={"events": "array"})
    (found,) = opened(form, {"events": [{}] * 11})
    assert isinstance(found, BadEvent)
    assert found.reason is BadPayloadReason.TOO_MANY_ENTRIES


# Signatures


@pytest.mark.parametrize(
    ("types", "value", "fits"),
    [
        ("text", "x", True),
        ("text", 1, False),
        ("number", 1.5, True),
        ("boolean", False, True),
        ("object", {}, True),
        ("array", [], True),
        ("array|object", {}, True),
        ("any", 0, True),
        ("any", None, False),
        ("text|null", None, True),
        ("text", None, False),
    ],
)
def test_a_signature_names_the_types_of_members(types: str, value: Any, *, fits: bool) -> None:
    members = EventMembers(decode_members(encode({"x": value})))
    assert reader(row(signature={"x": types})).matches(members) is fits


def test_the_first_row_that_matches_counts() -> None:
    table = FormatTable(
        reader(row(name=name, signature=signature))
        for name, signature in (("a", {"x": "text"}), ("b", {"y.z": "any"}), ("c", {"y": "any"}))
    )

    def name_of(entry: Json) -> str | None:
        top = decode_members(encode(entry))
        found = table.find(top, EventMembers(top))
        return None if found is None else found.form.name

    assert name_of({"y": {"z": 1}}) == "b"
    assert name_of({"y.z": 1}) == "b"
    assert name_of({"y": 1, "x": 1}) == "c"
    assert name_of({"x": "", "y": {"z": 1}}) == "a"
    assert name_of({"z": 1}) is None
