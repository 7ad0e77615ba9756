"""The fold over the documents of a response: order does not matter, and the last count wins."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consumer.core.bodies.body_reader import response_id_of
from consumer.core.bodies.documents import Document
from consumer.core.bodies.facts import ResponseFacts
from consumer.core.bodies.shapes import Shape, shape_of
from schemas import BadPayloadReason, IncompleteReason, SkipReason, Usage
from tests.unit.core.made import (
    Json,
    body_reader,
    chunk,
    encode,
    last_chunk,
    sse,
    vllm_stats,
    whole,
)

BODY_READER = body_reader()
PLACE = "metrics.speculative_decoding"


def document(body: Json) -> Document:
    read = BODY_READER.document_reader.read(encode(body))
    assert isinstance(read, Document)
    return read


def folded(*bodies: Json) -> ResponseFacts:
    facts = ResponseFacts()
    for order, body in enumerate(bodies):
        read = document(body)
        BODY_READER.fold_document(facts, read, order, shape_of(read))
    return facts


def taken(body: bytes) -> ResponseFacts:
    facts = ResponseFacts()
    assert BODY_READER.fold_body(facts, body) is None
    return facts


def refused(body: bytes) -> BadPayloadReason | SkipReason | IncompleteReason | None:
    return BODY_READER.fold_body(ResponseFacts(), body)


# Order

ids = st.none() | st.sampled_from(["a", "b", ""])
counts = st.none() | st.integers(0, 9)
bodies = st.builds(
    lambda name, model, finish, prompt, completion, stats, index: {
        "id": name,
        "object": "chat.completion.chunk",
        "model": model,
        "choices": [{"index": index, "finish_reason": finish}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
        "metrics": None if stats is None else {"speculative_decoding": {"n": stats}},
    },
    ids,
    st.none() | st.sampled_from(["m1", "m2"]),
    st.none() | st.sampled_from(["stop", "length"]),
    counts,
    counts,
    st.none() | st.integers(0, 9) | st.just("x" * 2000),
    st.integers(0, 2),
)


@settings(deadline=None, max_examples=150)
@given(data=st.data(), stream=st.lists(bodies, max_size=5))
def test_chunks_in_any_order_give_the_same_response(
    data: st.DataObject, stream: list[Json]
) -> None:
    small = body_reader(max_stats_bytes=1000)
    numbered = list(enumerate(map(document, stream)))
    results = []
    for order in (numbered, data.draw(st.permutations(numbered))):
        facts = ResponseFacts()
        for place, each in order:
            small.fold_document(facts, each, place, shape_of(each))
        facts.other_ids = tuple(sorted(facts.other_ids))
        results.append((facts, facts.too_large))
    assert results[0] == results[1]


def test_the_latest_usage_and_statistics_win_and_are_never_summed() -> None:
    facts = folded(chunk() | {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}, last_chunk())
    assert facts.usage == Usage(11, 24)
    facts = folded(last_chunk(accepted=3), last_chunk(accepted=6))
    assert facts.stats == {PLACE: encode(vllm_stats(6)["speculative_decoding"])}


def test_a_later_null_takes_nothing_away() -> None:
    facts = folded(last_chunk(), chunk() | {"usage": None, "metrics": None})
    assert facts.usage == Usage(11, 24)
    assert facts.stats is not None


@pytest.mark.parametrize("count", [-1, 1.0, True, "5", None, 2**63, 10**30])
def test_a_count_that_is_no_count_is_unknown(count: Any) -> None:
    assert folded(chunk() | {"usage": {"completion_tokens": count}}).usage is None


def test_the_first_id_names_the_response_and_all_are_known() -> None:
    facts = folded(chunk("a"), chunk("b"), chunk("a"))
    assert (facts.response_id, facts.other_ids) == ("a", ("b",))
    assert facts.may_have_id("b")
    assert facts.may_have_id(None)
    assert not facts.may_have_id("c")


def test_of_an_id_per_chunk_a_few_are_kept_and_then_ids_tell_nothing() -> None:
    facts = folded(*(chunk(f"c{number}") for number in range(100)))
    assert len(facts.other_ids) == 7
    assert facts.may_have_id("never seen")


def test_names_of_a_megabyte_are_cut() -> None:
    long = "x" * 1_000_000
    facts = folded(chunk(long) | {"model": long})
    assert len(facts.response_id or "") == len(facts.model or "") == 1024
    assert facts.may_have_id(long)


def test_the_id_of_a_document_may_stand_in_three_places() -> None:
    assert response_id_of(document({"id": "a", "request_id": "b"})) == "a"
    assert response_id_of(document({"id": "", "request_id": "b"})) == "b"
    assert response_id_of(document({"meta_info": {"id": "c"}})) == "c"
    assert response_id_of(document({})) is None


def test_statistics_above_the_cap_are_dropped_and_that_is_remembered() -> None:
    facts = ResponseFacts()
    body_reader(max_stats_bytes=10).fold_document(facts, document(last_chunk()), 0, Shape.CHUNK)
    assert facts.too_large
    assert facts.stats == {PLACE: b""}


def test_the_number_of_choices_is_the_highest_index_and_one() -> None:
    assert folded(chunk(index=1), chunk(index=0)).choices == 2


# Bodies


def test_text_that_is_cumulative_counts_once() -> None:
    first = {"text": "a", "meta_info": {"id": "g", "completion_tokens": 1, "finish_reason": None}}
    last: Json = {
        "text": "ab",
        "meta_info": {
            "id": "g",
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "finish_reason": {"type": "length"},
            "spec_verify_ct": 1,
        },
    }
    facts = taken(sse(first, last, "[DONE]"))
    assert facts.usage == Usage(3, 2)
    assert (facts.response_id, facts.finish_reason, facts.choices) == ("g", "length", 1)
    assert facts.stats == {"meta_info.spec*": b'{"spec_verify_ct":1}'}


@pytest.mark.parametrize("choices", [{}, {"choices": None}, {"choices": {}}])
def test_a_usage_chunk_counts_whatever_became_of_its_choices(choices: Json) -> None:
    """Gateways leave them out, or write lua-cjson's {} for an empty array."""
    usage = last_chunk()
    del usage["choices"]
    assert taken(sse(chunk(finish="stop"), usage | choices, "[DONE]")).usage == Usage(11, 24)
    usage["object"] = "text_completion"
    assert taken(sse(chunk(finish="stop"), usage | choices, "[DONE]")).stats is not None


def test_empty_texts_name_nothing() -> None:
    """Content filters send a first chunk of them; older engines finish each chunk with one."""
    filtered = chunk("", finish="") | {"model": "", "object": ""}
    facts = taken(sse(filtered, chunk("c1", finish=""), chunk("c1", finish="length"), "[DONE]"))
    assert (facts.response_id, facts.other_ids) == ("c1", ())
    assert (facts.model, facts.finish_reason) == ("demo-8b", "length")


def test_a_chunk_with_usage_and_an_empty_finish_reason_is_no_whole_completion() -> None:
    part = chunk(finish="") | {"object": "text_completion", "usage": {"completion_tokens": 1}}
    assert shape_of(document(part)) is Shape.CHUNK


def test_nothing_after_an_end_mark_changes_the_response() -> None:
    facts = taken(sse(chunk(), "[DONE]", last_chunk(), {"error": {}}))
    assert facts.ended
    assert not facts.failed
    assert facts.stats is None
    assert facts.documents == 1


def test_an_error_chunk_fails_the_response_even_if_an_end_mark_follows() -> None:
    assert taken(sse(chunk(), {"error": {"message": "x"}}, "[DONE]")).failed
    assert taken(sse(chunk()) + b"event: error\ndata: x\n\n").failed


def test_a_chunk_that_is_no_json_damages_the_response_and_the_rest_counts() -> None:
    facts = taken(sse(chunk(), "{broken", last_chunk(), "[DONE]"))
    assert facts.damaged
    assert not facts.truncated
    assert facts.stats is not None


def test_a_stream_that_breaks_off_is_truncated_and_its_good_part_kept() -> None:
    stream = sse(last_chunk(), chunk())
    facts = taken(stream[:-40])
    assert facts.truncated
    assert not facts.damaged
    assert facts.stats is not None


def test_data_of_blanks_only_is_noise() -> None:
    facts = taken(b"data:  \n\ndata:\ndata:\n\n" + sse(last_chunk(), "[DONE]"))
    assert not facts.damaged


def test_other_apis_end_by_their_own_terminators_and_carry_no_statistics() -> None:
    anthropic = taken(
        b"event: message_start\n"
        + sse(
            {"type": "message_start", "message": {"id": "m1", "model": "c"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_delta", "usage": {"output_tokens": 7}},
            {"type": "message_stop"},
        )
    )
    assert (anthropic.response_id, anthropic.model, anthropic.finish_reason) == (
        "m1",
        "c",
        "end_turn",
    )
    assert anthropic.usage == Usage(None, 7)
    assert anthropic.ended
    assert anthropic.without_stats
    failed = {"type": "response.failed", "response": {"id": "resp_1"}}
    responses = taken(sse({"type": "response.created", "response": {"id": "resp_1"}}, failed))
    assert (responses.response_id, responses.ended, responses.failed) == ("resp_1", True, True)


def test_json_lines_are_a_stream_without_an_end_mark() -> None:
    facts = taken(encode(chunk()) + b"\n" + encode(last_chunk()) + b"\r\n")
    assert facts.streamed
    assert not facts.ended
    assert not facts.damaged
    assert facts.stats is not None


@pytest.mark.parametrize("between", [b"", b" ", b"\n\n"])
def test_collected_documents_may_stand_one_after_another(between: bytes) -> None:
    facts = taken(encode(chunk()) + between + encode(last_chunk()) + between)
    assert facts.documents == 2
    assert facts.stats is not None


@pytest.mark.parametrize("end", [b"[DONE]", b"data: [DONE]\n\n", b": ping\n\n[DONE]\n"])
@pytest.mark.parametrize("field", [b"", b"data: "])
def test_collected_lines_may_keep_what_was_around_the_chunks(field: bytes, end: bytes) -> None:
    lines = (encode(chunk()), field + encode(last_chunk()), end)
    facts = taken(b"\n".join(lines))
    assert facts.ended
    assert not facts.damaged
    assert facts.stats is not None


def test_json_lines_that_break_off_are_truncated() -> None:
    facts = taken(encode(chunk()) + b"\n" + encode(chunk())[:20])
    assert facts.truncated
    assert not facts.damaged


def test_the_answer_to_several_prompts_has_as_many_choices() -> None:
    answers = [
        {"text": "x", "meta_info": {"id": f"g{n}", "finish_reason": {"type": "stop"}}}
        for n in range(3)
    ]
    facts = taken(encode(answers))
    assert (facts.choices, facts.ended, facts.streamed) == (3, True, False)


@pytest.mark.parametrize("glue", ["array", "lines"])
def test_several_responses_in_one_body_are_nobodys_generation(glue: str) -> None:
    """Taken for one, the numbers of the last would pass for those of all."""
    both = [whole("a"), whole("b")]
    facts = taken(encode(both) if glue == "array" else b"\n".join(map(encode, both)))
    assert facts.choices == 2


def test_a_collected_stream_is_one_response() -> None:
    facts = taken(encode([chunk("a"), chunk("a"), last_chunk("a")]))
    assert (facts.choices, facts.streamed, facts.ended) == (1, True, False)


def test_an_order_places_a_body_behind_what_came_before() -> None:
    facts = folded(chunk(), chunk(), last_chunk(accepted=3))
    BODY_READER.fold_body(facts, encode(last_chunk(accepted=6)), 1)
    assert facts.stats == {PLACE: encode(vllm_stats(3)["speculative_decoding"])}
    BODY_READER.fold_body(facts, encode(last_chunk(accepted=6)), 3)
    assert facts.stats == {PLACE: encode(vllm_stats(6)["speculative_decoding"])}


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"\n\n ", b" \xef\xbb\xbf\r\n"])
@pytest.mark.parametrize("body", [encode(whole()), sse(whole())])
def test_what_stands_before_a_body_does_not_matter(before: bytes, body: bytes) -> None:
    assert taken(before + body).stats is not None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", IncompleteReason.EMPTY_BODY),
        (b" \r\n", IncompleteReason.EMPTY_BODY),
        (b"[DONE]", SkipReason.ORPHAN_END),
        (b"data: [DONE]\n\n", SkipReason.ORPHAN_END),
        (b"[]", SkipReason.EMPTY_BATCH),
        (b'{"choices":[{"in', IncompleteReason.TRUNCATED),
        (b'[{"choices":[', IncompleteReason.TRUNCATED),
        (b"{]", BadPayloadReason.INVALID_JSON),
        (b'{"a":1}', BadPayloadReason.BODY_NOT_A_RESPONSE),
        (b"[7]", BadPayloadReason.BODY_NOT_A_RESPONSE),
        (b"data: hello", None),
        (b": ping\n\n", SkipReason.KEEP_ALIVE),
        (b"data: {}\n\n", BadPayloadReason.BODY_NOT_A_RESPONSE),
        (b"hello", BadPayloadReason.UNRECOGNISED_FORMAT),
        (b"7", BadPayloadReason.UNRECOGNISED_FORMAT),
        (b'{"object":"list","data":[]}', SkipReason.UNRELATED_BODY),
        (b'{"predictions":[1,NaN]}', SkipReason.INFERENCE),
        (b'{"a":' + b"[" * 100_000, BadPayloadReason.TOO_DEEP),
        (b"[" * 2_000, BadPayloadReason.TOO_DEEP),
        (b"[" * 100_000, BadPayloadReason.TOO_DENSE),
    ],
)
def test_a_body_without_a_response_is_refused_by_name(
    body: bytes, reason: BadPayloadReason | SkipReason | IncompleteReason | None
) -> None:
    assert refused(body) is reason


@pytest.mark.parametrize("page", [b"<html><body>502", b"<!DOCTYPE html>", b"<?xml version='1.0'?>"])
def test_the_error_page_of_a_proxy_is_a_failed_response(page: bytes) -> None:
    assert taken(page).failed


@settings(deadline=None, max_examples=200)
@given(
    body=st.lists(
        st.sampled_from(
            [b"{", b"[", b"}", b"data: ", b"\n\n", b"[DONE]", b"<html", encode(whole())]
        )
        | st.binary(max_size=4),
        max_size=8,
    ).map(b"".join)
)
@example(body=b"\xbf\xef{}")
def test_no_bytes_make_it_raise(body: bytes) -> None:
    facts = ResponseFacts()
    BODY_READER.fold_body(facts, body)
    encode(facts)
