"""What holds for any statistics at all: no adapter raises, and consistent counts are kept."""

import math
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consumer.core.adapters.registry import judge, places_of
from schemas import (
    AcceptanceRecord,
    MalformedReason,
    ParsedResponse,
    RequestOutcome,
    Usage,
    violated_identity,
)
from tests.unit.core.adapters.parsed import ADAPTERS, judged

PLACES = places_of(ADAPTERS)
NAMES = [
    "mean_acceptance_length",
    "draft_acceptance_rate",
    "acceptance_histogram",
    "num_spec_steps",
    "num_accepted_draft_tokens",
    "num_draft_tokens",
    "num_spec_tokens",
    "per_step_accepted",
    "per_step_drafted",
    "total_accepted_draft_tokens",
    "total_draft_tokens",
    "spec_verify_ct",
    "spec_num_correct_drafts",
    "spec_num_proposed_drafts",
    "spec_correct_drafts_histogram",
    "spec_accepted_drafts",
    "spec_accept_histogram",
    "spec_accept_token_num",
    "spec_draft_token_num",
    "spec_accepted_tokens",
    "spec_draft_tokens",
    "speculative_decoding_stats",
    "num_verification_steps",
    "num_verified_draft_tokens",
    "verify_lengths",
    "accept_lengths",
    "draft_n",
    "draft_n_accepted",
    "draft_rounds",
    "total_draft_tokens_count",
    "accepted_draft_tokens_count",
    "accepted_tokens",
    "rejected_tokens",
    "accepted_tokens_per_head",
]
OBJECTS: list[dict[str, Any]] = [
    {
        "mean_acceptance_length": 2.0,
        "draft_acceptance_rate": 0.5,
        "acceptance_histogram": [1, 0, 1],
        "num_spec_steps": 2,
        "num_accepted_draft_tokens": 2,
        "num_draft_tokens": 4,
        "num_spec_tokens": 2,
    },
    {
        "total_accepted_draft_tokens": 2,
        "total_draft_tokens": 4,
        "acceptance_histogram": [1, 0, 1],
        "num_spec_steps": 2,
    },
    {"spec_verify_ct": 2, "spec_accept_histogram": [1, 0, 1]},
    {"spec_verify_ct": 0, "spec_num_proposed_drafts": 0},
    {"spec_verify_ct": 2, "spec_accepted_tokens": 2, "spec_draft_tokens": 4},
    {
        "num_verification_steps": 2,
        "num_verified_draft_tokens": 4,
        "num_accepted_draft_tokens": 2,
        "verify_lengths": [3, 3],
        "accept_lengths": [3, 1],
    },
    {"draft_n": 4, "draft_n_accepted": 2},
    {"draft_n": 4, "draft_n_accepted": 2, "draft_rounds": 2, "draft_kind": "mtp"},
    {"total_draft_tokens_count": 4, "accepted_draft_tokens_count": 2},
    {"accepted_tokens": 4, "rejected_tokens": 2, "accepted_tokens_per_head": [2, 1, 1]},
]

integers = st.integers(-3, 9) | st.integers()
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False) | st.text(max_size=5)
noise = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=8,
)
# An engine's own object with some members replaced gets further than mere noise.
members = st.dictionaries(
    st.sampled_from(NAMES), integers | st.lists(integers, max_size=5) | scalars, max_size=2
)
nearly_right = st.builds(dict.__or__, st.sampled_from(OBJECTS), members)
raw_stats = st.binary(max_size=60) | st.one_of(
    noise, members, nearly_right, st.lists(nearly_right, max_size=2)
).map(msgspec.json.encode)


@settings(deadline=None, max_examples=200)
@given(stats=st.dictionaries(st.sampled_from(PLACES), raw_stats, min_size=1, max_size=2))
@example(stats=dict.fromkeys(PLACES, b"[" * 50_000 + b"]" * 50_000))
@example(stats=dict.fromkeys(PLACES, b'{"spec_verify_ct":' + b"9" * 10_000 + b"}"))
@example(stats={PLACES[0]: b'{"spec_verify_ct":1e999}'})
@example(stats={PLACES[0]: b'{"spec_verify_ct":1,"spec_x":"\\ud800"}'})
@example(stats={PLACES[0]: b'{"spec_verify_ct":1,"spec_\xff":1}'})
def test_no_bytes_make_an_adapter_raise(stats: dict[str, bytes]) -> None:
    response = ParsedResponse(stats=stats)
    for adapter in ADAPTERS:
        adapter.can_adapt([response])
        adapter.adapt([response])
    judgement = judge(ADAPTERS, response)
    assert judgement.failures == ()
    assert judgement.reason is not MalformedReason.ADAPTER_FAILED
    assert (judgement.record is not None) == (judgement.outcome is RequestOutcome.PUBLISHED)
    if judgement.record is not None:
        assert violated_identity(judgement.record) is None
        decoded = msgspec.json.decode(
            msgspec.json.encode(judgement.record), type=AcceptanceRecord, strict=True
        )
        assert decoded == judgement.record


@st.composite
def generations(draw: st.DrawFn) -> AcceptanceRecord:
    """Draw a generation step by step, and count it as an engine would."""
    k = draw(st.integers(1, 8))
    drafted = draw(st.lists(st.integers(0, k), max_size=40))
    accepted = [draw(st.integers(0, most)) for most in drafted]
    steps = len(accepted)
    return AcceptanceRecord(
        engine="any",
        mean_acceptance_length=1 + sum(accepted) / steps if steps else 1.0,
        draft_acceptance_rate=sum(accepted) / sum(drafted) if sum(drafted) else 0.0,
        acceptance_histogram={each: accepted.count(each) for each in sorted(set(accepted))},
        num_accepted_draft_tokens=sum(accepted),
        num_draft_tokens=sum(drafted),
        num_spec_steps=steps,
        num_spec_tokens=k,
        completion_tokens=1 + steps + sum(accepted),
        per_step_accepted=accepted,
        per_step_drafted=drafted,
    )


def dense(record: AcceptanceRecord, buckets: int) -> list[int]:
    histogram = record.acceptance_histogram or {}
    return [histogram.get(bucket, 0) for bucket in range(buckets)]


def published(place: str, stats: dict[str, Any], usage: int | None) -> AcceptanceRecord | None:
    response = ParsedResponse(
        stats={place: msgspec.json.encode(stats)}, usage=Usage(completion_tokens=usage)
    )
    record = judge(ADAPTERS, response).record
    if record is not None:
        assert violated_identity(record) is None
    return record


@settings(deadline=None)
@given(record=generations())
def test_vllm_counts_come_out_as_they_went_in(record: AcceptanceRecord) -> None:
    assert record.num_spec_tokens is not None
    stats = {
        name: getattr(record, name)
        for name in NAMES
        if name in AcceptanceRecord.__struct_fields__ and name != "acceptance_histogram"
    }
    stats["acceptance_histogram"] = dense(record, record.num_spec_tokens + 1)
    found = published("metrics.speculative_decoding", stats, record.completion_tokens)
    assert found == msgspec.structs.replace(record, engine="vllm")


@settings(deadline=None)
@given(record=generations())
def test_tensorrt_llm_counts_come_out_as_they_went_in(record: AcceptanceRecord) -> None:
    assert record.num_spec_tokens is not None
    stats = {
        "total_accepted_draft_tokens": record.num_accepted_draft_tokens,
        "total_draft_tokens": record.num_draft_tokens,
        "num_spec_steps": record.num_spec_steps,
        "num_spec_tokens": record.num_spec_tokens,
        "acceptance_histogram": dense(record, record.num_spec_tokens + 1),
    }
    found = published("choices[].speculative_decoding", stats, record.completion_tokens)
    expected = msgspec.structs.replace(
        record, engine="tensorrt_llm", per_step_accepted=None, per_step_drafted=None
    )
    if not record.num_draft_tokens:
        expected = msgspec.structs.replace(expected, draft_acceptance_rate=None)
    if not record.num_spec_steps:
        expected = msgspec.structs.replace(expected, mean_acceptance_length=None)
    assert found == expected


@settings(deadline=None)
@given(record=generations(), nominal=st.integers(0, 400))
def test_sglang_counts_come_out_as_they_went_in(record: AcceptanceRecord, nominal: int) -> None:
    depth = max(record.acceptance_histogram or {0: 0})
    stats = {
        "spec_verify_ct": record.num_spec_steps,
        "spec_num_correct_drafts": record.num_accepted_draft_tokens,
        "spec_num_proposed_drafts": nominal if record.num_spec_steps else 0,
        "spec_correct_drafts_histogram": dense(record, depth + 1),
    }
    found = published("sglext.spec_tokens_details", stats, record.completion_tokens)
    if not record.num_spec_steps:
        assert found is None
        return
    assert found is not None
    assert found.num_spec_steps == record.num_spec_steps
    assert found.num_accepted_draft_tokens == record.num_accepted_draft_tokens
    assert found.acceptance_histogram == record.acceptance_histogram
    assert found.mean_acceptance_length == record.mean_acceptance_length
    assert found.num_draft_tokens in {nominal, None}
    assert not found.draft_tokens_measured
    if found.draft_acceptance_rate is not None:
        assert math.isfinite(found.draft_acceptance_rate)
        assert 0 <= found.draft_acceptance_rate <= 1


@settings(deadline=None)
@given(record=generations(), name=st.sampled_from(NAMES[3:6]), by=st.integers(1, 1000))
def test_one_count_that_is_too_high_is_never_published_beside_its_histogram(
    record: AcceptanceRecord, name: str, by: int
) -> None:
    assert record.num_spec_tokens is not None
    stats = {
        "mean_acceptance_length": 1.0,
        "draft_acceptance_rate": 0.0,
        "acceptance_histogram": dense(record, record.num_spec_tokens + 1),
        "num_spec_steps": record.num_spec_steps,
        "num_accepted_draft_tokens": record.num_accepted_draft_tokens,
        "num_draft_tokens": record.num_draft_tokens,
        "num_spec_tokens": record.num_spec_tokens,
        "per_step_drafted": record.per_step_drafted,
    }
    stats[name] += by  # type: ignore[operator]
    judgement = judged({"metrics.speculative_decoding": stats})
    assert judgement.outcome is RequestOutcome.MALFORMED_STATS


@settings(deadline=None, max_examples=300)
@given(place=st.sampled_from(PLACES), value=nearly_right)
def test_a_published_mean_and_rate_are_those_of_the_counts(
    place: str, value: dict[str, Any]
) -> None:
    record = judged({place: value}).record
    if record is None:
        return
    accepted = record.num_accepted_draft_tokens
    if accepted is not None and record.num_spec_steps:
        assert record.mean_acceptance_length == 1 + accepted / record.num_spec_steps
    if accepted is not None and record.num_draft_tokens:
        assert record.draft_acceptance_rate == accepted / record.num_draft_tokens
    assert record.mean_acceptance_length is None or record.mean_acceptance_length >= 1
    assert record.draft_acceptance_rate is None or 0 <= record.draft_acceptance_rate <= 1


@given(place=st.sampled_from(PLACES), value=st.sampled_from(OBJECTS), more=members)
def test_one_object_is_never_claimed_by_two_adapters(
    place: str, value: dict[str, Any], more: dict[str, Any]
) -> None:
    """Members that are not known yet may come to an object; those of another engine would not."""
    assert len(judged({place: {f"new_{name}": 1 for name in more} | value}).claims) <= 1
