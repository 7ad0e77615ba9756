"""JSON documents: the fast path and the tolerant one give the same, and neither raises."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from consumer.core.adapters.registry import places_of
from consumer.core.bodies import shapes
from consumer.core.bodies.documents import Document, DocumentReader
from consumer.core.bodies.json_text import is_cut_off, is_set, loads_tolerantly, raw_members
from consumer.core.bodies.places import PlaceError
from consumer.core.bodies.shapes import Shape, shape_of
from schemas import BadPayloadReason
from tests.unit.core.made import ADAPTERS, chunk, last_chunk, vllm_stats, whole

READER = DocumentReader(places_of(ADAPTERS), 1_024)
MEMBERS = [
    *("id", "request_id", "object", "type", "model", "index", "choices", "usage", "meta_info"),
    *("error", "response", "message", "delta", "stop_reason", "metrics", "sglext", "other"),
    *("finish_reason", "speculative_decoding", "spec_verify_ct", "prompt_tokens"),
]
TEXTS = ["chat.completion", "chat.completion.chunk", "error", "message", "stop", "list", "ä\u2028"]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 200_000)
    | st.integers()
    | st.floats(allow_nan=True)
    | st.sampled_from(TEXTS)
    | st.text(max_size=4)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4)
    ),
    max_leaves=10,
)
objects = st.dictionaries(st.sampled_from(MEMBERS), values, max_size=6)
nearly_right = st.builds(
    lambda base, change: {**base, **change},
    st.sampled_from([chunk(), last_chunk(), whole()]),
    st.dictionaries(st.sampled_from(MEMBERS), values, max_size=2),
)


@settings(deadline=None, max_examples=500)
@given(
    value=nearly_right | objects,
    end=st.integers(0, 600),
    noise=st.lists(
        st.tuples(
            st.integers(0, 300),
            st.sampled_from(
                [b"NaN", b'"', b"\\", b"\xff", b"\\ud83d", b"\\u", b"-", b"1e", b"}", b"{", b"\x00"]
            ),
        ),
        max_size=3,
    ),
)
def test_what_is_cut_off_cannot_be_read_tolerantly_either(
    value: Any, end: int, noise: list[tuple[int, bytes]]
) -> None:
    text = json.dumps(value).encode()[:end]
    for at, piece in noise:
        text = text[:at] + piece + text[at:]
    if not text.startswith(b"{"):
        return
    try:
        msgspec.json.decode(text, type=READER.document_type)
    except msgspec.MsgspecError as error:
        if is_cut_off(error):
            assert isinstance(loads_tolerantly(text), BadPayloadReason)


def plain(document: Document | BadPayloadReason) -> Any:
    """Return all that a document says, raw members as what they mean."""
    if isinstance(document, BadPayloadReason):
        return document
    return {name: _plain(getattr(document, name)) for name in document.__struct_fields__}


def _plain(value: Any) -> Any:
    if isinstance(value, Raw):
        return loads_tolerantly(bytes(value)) if is_set(value) else None
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [plain(choice) for choice in value]
    return value


def stats(document: Document) -> dict[str, Any]:
    return {place: loads_tolerantly(raw) for place, raw in READER.stats(document)}


@settings(deadline=None, max_examples=300)
@given(value=nearly_right | objects, ascii_only=st.booleans())
@example(value={"index": 100_000}, ascii_only=True)
@example(value={"index": -1}, ascii_only=True)
@example(value={"choices": [{"index": 10**30}, None, 7]}, ascii_only=True)
@example(value={"id": 7, "model": 1.5, "object": True}, ascii_only=True)
@example(value={"usage": [], "meta_info": "x", "choices": {}}, ascii_only=True)
def test_the_fast_path_and_the_tolerant_one_agree(
    value: dict[str, Any],
    ascii_only: bool,
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    fast, tolerant = READER.read(text), READER.read_tolerantly(text)
    assert plain(fast) == plain(tolerant)
    if isinstance(fast, Document) and isinstance(tolerant, Document):
        assert shape_of(fast) is shape_of(tolerant)
        assert stats(fast) == stats(tolerant)


@settings(deadline=None, max_examples=200)
@given(
    text=st.binary(max_size=40)
    | nearly_right.map(json.dumps)
    .map(str.encode)
    .flatmap(
        lambda text: st.builds(
            lambda at, noise: text[:at] + noise + text[at:],
            st.integers(0, len(text)),
            st.binary(max_size=2),
        )
    )
)
@example(text=b"[" * 100_000)
@example(text=b'{"a":' * 100_000)
@example(text=b'{"metrics":' + b"[" * 100_000)
@example(text=b'{"index":' + b"9" * 5000 + b"}")
@example(text=b'{"id":"\xff"}')
@example(text=b'{"id":"\\ud800"}')
def test_no_bytes_make_it_raise(text: bytes) -> None:
    for document in (READER.read(text), READER.read_tolerantly(text)):
        if isinstance(document, Document):
            shape_of(document)
            READER.stats(document)
    raw_members(text)


# What the field sends


@pytest.mark.parametrize(
    "odd",
    [
        b'"logprob":NaN',
        b'"logprob":-Infinity',
        b'"text":"\\ud83c"',
        b'"text":"a\x00\x01\tb"',
        b'"text":"\xff\xc3"',
        b'"n":' + b"9" * 5000,
        b'"n":14879255164371896291',
        b'"n":1e999',
        b'"object":["chat.completion"]',
        b'"id":12',
    ],
)
def test_odd_content_does_not_cost_the_statistics(odd: bytes) -> None:
    text = b"{" + odd + b"," + json.dumps(last_chunk()).encode()[1:]
    document = READER.read(text)
    assert isinstance(document, Document)
    assert stats(document)["metrics.speculative_decoding"] == vllm_stats()["speculative_decoding"]
    assert document.usage is not None
    assert shape_of(document) is Shape.CHUNK


def test_of_equal_keys_the_last_wins_on_both_paths() -> None:
    text = b'{"model":"a","usage":{"x":1},"model":"b","usage":{"y":2}}'
    for document in (READER.read(text), READER.read_tolerantly(text)):
        assert isinstance(document, Document)
        assert document.model == "b"
        assert document.usage is not None
        assert list(document.usage) == ["y"]


def test_nan_among_statistics_becomes_null_and_never_text_that_is_no_json() -> None:
    document = READER.read(b'{"metrics":{"speculative_decoding":{"rate":NaN,"b":1e999}}}')
    assert isinstance(document, Document)
    [(_, raw)] = READER.stats(document)
    assert json.loads(raw, parse_constant=pytest.fail) == {"rate": None, "b": None}


def test_ids_that_are_numbers_are_read_as_text() -> None:
    document = READER.read(b'{"id":17,"choices":[]}')
    assert isinstance(document, Document)
    assert document.id == "17"


def test_what_is_nested_too_deep_is_refused_by_name() -> None:
    assert READER.read(b'{"a":' + b"[" * 100_000) is BadPayloadReason.TOO_DEEP
    assert raw_members(b"[" * 100_000) is BadPayloadReason.TOO_DEEP


@pytest.mark.parametrize("text", [b"[]", b"7", b'"x"', b"null"])
def test_only_an_object_is_a_document(text: bytes) -> None:
    assert READER.read(text) is BadPayloadReason.UNRECOGNISED_SHAPE


# Shapes


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (chunk(), Shape.CHUNK),
        (whole(), Shape.WHOLE),
        ({"choices": []}, Shape.CHUNK),
        ({"object": "text_completion", "choices": [{"finish_reason": None}]}, Shape.CHUNK),
        (
            {"object": "text_completion", "choices": [{"finish_reason": "stop"}], "usage": {}},
            Shape.WHOLE,
        ),
        ({"text": "x", "meta_info": {"finish_reason": None}}, Shape.CHUNK),
        ({"text": "x", "meta_info": {"finish_reason": {"type": "stop"}}}, Shape.WHOLE),
        ({"error": {"message": "x"}}, Shape.ERROR),
        ({"object": "error", "message": "x"}, Shape.ERROR),
        ({"type": "error", "error": {}}, Shape.ERROR),
        ({"object": "chat.completion", "choices": [], "error": None}, Shape.WHOLE),
        ({"type": "message_stop"}, Shape.API_EVENT),
        ({"type": "response.completed", "response": {}}, Shape.API_EVENT),
        ({"type": "message", "content": []}, Shape.WHOLE),
        ({"object": "response", "output": []}, Shape.WHOLE),
        ({"object": "list", "data": []}, Shape.UNRELATED),
        ({"a": 1}, Shape.UNKNOWN),
        ({}, Shape.UNKNOWN),
    ],
)
def test_the_members_of_the_apis_decide_the_shape(body: dict[str, Any], shape: Shape) -> None:
    document = READER.read(json.dumps(body).encode())
    assert isinstance(document, Document)
    assert shape_of(document) is shape


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "object": st.sampled_from(
                ["chat.completion.chunk", "chat.completion", "text_completion", "error", "list", 1]
            ),
            "type": st.sampled_from([None, "error", "message", "ping", "response.created"]),
            "choices": st.sampled_from([None, [], [{}], [{"finish_reason": "stop"}]]),
            "usage": st.sampled_from([None, {}, {"completion_tokens": 1}]),
            "error": st.sampled_from([None, {}, "x"]),
            "meta_info": st.sampled_from([None, {}, {"finish_reason": {"type": "stop"}}]),
        },
    )
)
def test_the_two_commonest_shapes_are_those_that_the_rules_give(body: dict[str, Any]) -> None:
    document = READER.read(json.dumps(body).encode())
    assert isinstance(document, Document)
    assert shape_of(document) is shapes._shape_of_any(document)


# Places


def found(places: list[str], body: dict[str, Any]) -> dict[str, Any]:
    reader = DocumentReader(places, 1_024)
    document = reader.read(json.dumps(body).encode())
    assert isinstance(document, Document)
    return {place: json.loads(raw) for place, raw in reader.stats(document)}


def test_a_place_is_found_at_any_depth_and_only_if_it_is_filled() -> None:
    places = ["a.b.c", "a.d", "e"]
    assert found(places, {"a": {"b": {"c": 1}, "d": None}, "e": [2]}) == {"a.b.c": 1, "e": [2]}
    assert found(places, {"a": {"b": 7}}) == {}
    assert found(places, {"a": []}) == {}


def test_a_place_ending_in_a_star_keeps_the_members_of_its_prefix() -> None:
    places = ["meta_info.spec*", "x.y.z*"]
    body = {"meta_info": {"spec_a": 1, "spec_b": None, "id": "c"}, "x": {"y": {"za": 2, "b": 3}}}
    assert found(places, body) == {"meta_info.spec*": {"spec_a": 1}, "x.y.z*": {"za": 2}}


def test_a_place_in_the_choices_is_found_in_each() -> None:
    reader = DocumentReader(["choices[].s", "choices[].m.spec*"], 1_024)
    document = reader.read(b'{"choices":[{"s":1},{"s":null,"m":{"spec_a":2,"b":1}},{"s":3}]}')
    assert isinstance(document, Document)
    assert reader.stats(document) == [
        ("choices[].s", b"1"),
        ("choices[].m.spec*", b'{"spec_a":2}'),
        ("choices[].s", b"3"),
    ]


def test_a_place_below_the_usage_shares_its_member() -> None:
    body = {"usage": {"draft_tokens": 3, "prompt_tokens": 1}}
    assert found(["usage.draft*"], body) == {"usage.draft*": {"draft_tokens": 3}}


@pytest.mark.parametrize(
    "place", ["", "a..b", ".a", "a.", "a*.b", "choices", "id", "usage", "choices[].index", "a[].b"]
)
def test_a_place_that_cannot_be_kept_is_refused(place: str) -> None:
    with pytest.raises(PlaceError, match="place"):
        DocumentReader([place], 1_024)
