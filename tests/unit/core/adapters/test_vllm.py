"""The vLLM adapter: verbatim floats, a dense histogram, and zero steps as a record."""

from typing import Any

import pytest
from msgspec.structs import replace

from consumer.core.adapters.protocol import malformed
from consumer.core.adapters.vllm import VLLMAdapter
from schemas import AcceptanceRecord, MalformedReason, ParsedResponse, RequestOutcome
from tests.unit.core.adapters.parsed import judged, response, sample

PLACE = "metrics.speculative_decoding"

BASE = AcceptanceRecord(
    engine="vllm",
    mean_acceptance_length=2.5,
    draft_acceptance_rate=0.5,
    acceptance_histogram={0: 8, 2: 6, 3: 6},
    num_accepted_draft_tokens=30,
    num_draft_tokens=60,
    num_spec_steps=20,
    num_spec_tokens=3,
    completion_tokens=51,
)
DETAILED = replace(
    BASE,
    per_step_accepted=[3, 0, 2, 3, 0, 2, 3, 0, 0, 2, 3, 0, 2, 3, 0, 0, 2, 3, 0, 2],
    per_step_drafted=[3] * 20,
)
ZERO_STEPS = AcceptanceRecord(
    engine="vllm",
    mean_acceptance_length=1.0,
    draft_acceptance_rate=0.0,
    acceptance_histogram={},
    num_accepted_draft_tokens=0,
    num_draft_tokens=0,
    num_spec_steps=0,
    num_spec_tokens=3,
    completion_tokens=1,
)
ALL_REJECTED = AcceptanceRecord(
    engine="vllm",
    mean_acceptance_length=1.0,
    draft_acceptance_rate=0.0,
    acceptance_histogram={0: 20},
    num_accepted_draft_tokens=0,
    num_draft_tokens=60,
    num_spec_steps=20,
    num_spec_tokens=3,
    completion_tokens=21,
)
VARIABLE_DRAFT = AcceptanceRecord(
    engine="vllm",
    mean_acceptance_length=2.166666666666667,
    draft_acceptance_rate=0.5833333333333334,
    acceptance_histogram={0: 2, 1: 2, 2: 1, 3: 1},
    num_accepted_draft_tokens=7,
    num_draft_tokens=12,
    num_spec_steps=6,
    num_spec_tokens=3,
    completion_tokens=14,
    per_step_accepted=[1, 3, 0, 2, 0, 1],
    per_step_drafted=[1, 3, 3, 2, 0, 3],
)


def stats(**changes: Any) -> dict[str, Any]:
    """Return the object of the base case with members changed; `...` takes a member out."""
    members = {
        "mean_acceptance_length": 2.5,
        "draft_acceptance_rate": 0.5,
        "acceptance_histogram": [8, 0, 6, 6],
        "num_spec_steps": 20,
        "num_accepted_draft_tokens": 30,
        "num_draft_tokens": 60,
        "num_spec_tokens": 3,
    } | changes
    return {name: value for name, value in members.items() if value is not ...}


def record_of(**changes: Any) -> AcceptanceRecord:
    record = judged({PLACE: stats(**changes)}).record
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("chat_nonstream_all_rejected.json", ALL_REJECTED),
        ("chat_nonstream_detailed_with_timing.json", DETAILED),
        ("chat_nonstream_summary.json", BASE),
        ("chat_nonstream_variable_draft_detailed.json", VARIABLE_DRAFT),
        ("chat_nonstream_zero_steps.json", ZERO_STEPS),
        ("chat_stream_detailed_with_timing.sse", DETAILED),
        ("chat_stream_summary.sse", BASE),
        ("chat_stream_zero_steps.sse", ZERO_STEPS),
        ("completions_nonstream_summary.json", BASE),
        ("completions_stream_summary.sse", BASE),
        ("inference_generate_nonstream.json", BASE),
    ],
)
def test_a_sample_gives_exactly_this_record(name: str, record: AcceptanceRecord) -> None:
    assert VLLMAdapter.can_adapt([sample(f"vllm/{name}")])
    assert VLLMAdapter.adapt([sample(f"vllm/{name}")]) == record


@pytest.mark.parametrize("name", ["num_spec_steps", "num_draft_tokens", "acceptance_histogram"])
def test_an_object_in_which_a_key_is_missing_or_renamed_is_not_claimed(name: str) -> None:
    """It counts as unrecognised, and a plugin can read it."""
    changed = stats() | {f"{name}_v2": stats()[name]}
    del changed[name]
    assert not VLLMAdapter.can_adapt([response({PLACE: changed})])


@pytest.mark.parametrize("absent", [None, ...])
@pytest.mark.parametrize("name", ["per_step_accepted", "per_step_drafted", "num_spec_tokens"])
def test_null_and_absent_members_are_alike(name: str, absent: object) -> None:
    record = record_of(**{name: absent})
    assert getattr(record, name) is None
    assert record.num_spec_steps == 20


def test_mean_and_rate_are_those_of_the_counts_and_what_differs_is_named() -> None:
    judgement = judged({PLACE: stats(mean_acceptance_length=9.9, draft_acceptance_rate=0.501)})
    assert judgement.record == replace(BASE, completion_tokens=None)
    assert judgement.differing == ("mean_acceptance_length",)


def test_a_mean_of_committed_tokens_does_not_replace_the_one_of_verified_drafts() -> None:
    # vllm-project/vllm PR 56101: five drafts accepted in one step, of which two were committed.
    record = record_of(
        mean_acceptance_length=3.0,
        draft_acceptance_rate=1.0,
        acceptance_histogram=[0, 0, 0, 0, 0, 1],
        num_spec_steps=1,
        num_accepted_draft_tokens=5,
        num_draft_tokens=5,
        num_spec_tokens=5,
    )
    assert record.mean_acceptance_length == 6.0


def test_a_mean_and_a_rate_written_as_json_integers_become_floats() -> None:
    record = record_of(
        mean_acceptance_length=1,
        draft_acceptance_rate=0,
        acceptance_histogram=[20, 0, 0, 0],
        num_accepted_draft_tokens=0,
    )
    assert repr(record.mean_acceptance_length) == "1.0"
    assert repr(record.draft_acceptance_rate) == "0.0"


def test_empty_per_step_arrays_of_zero_steps_are_kept() -> None:
    record = record_of(
        acceptance_histogram=[0, 0, 0, 0],
        num_spec_steps=0,
        num_accepted_draft_tokens=0,
        num_draft_tokens=0,
        per_step_accepted=[],
        per_step_drafted=[],
    )
    assert record.per_step_accepted == []
    assert record.per_step_drafted == []


def test_members_that_are_not_known_yet_are_ignored() -> None:
    by_length = {"3": [8, 0, 6, 6]}
    assert record_of(acceptance_histogram_by_draft_length=by_length) == record_of()


def test_a_count_of_63_bits_is_read_exactly() -> None:
    record = record_of(num_draft_tokens=2**63 - 1)
    assert record.num_draft_tokens == 2**63 - 1


def test_without_usage_there_are_no_completion_tokens() -> None:
    bare = ParsedResponse(stats=response({PLACE: stats()}).stats)
    record = VLLMAdapter.adapt([bare])
    assert isinstance(record, AcceptanceRecord)
    assert record.completion_tokens is None


def test_of_several_responses_the_last_with_statistics_counts() -> None:
    first = response({PLACE: stats(num_draft_tokens=61)}, completion_tokens=1)
    last = response({PLACE: stats()}, completion_tokens=2)
    without = response({}, completion_tokens=3)
    record = VLLMAdapter.adapt([first, last, without])
    assert isinstance(record, AcceptanceRecord)
    assert (record.num_draft_tokens, record.completion_tokens) == (60, 2)


def test_no_response_is_no_claim_and_no_record() -> None:
    assert not VLLMAdapter.can_adapt([])
    assert VLLMAdapter.adapt([]) is None


@pytest.mark.parametrize(
    "name", ["mean_acceptance_length", "num_accepted_draft_tokens", "draft_acceptance_rate"]
)
@pytest.mark.parametrize("value", ["2.5", True, [2], {}, None])
def test_a_number_of_a_wrong_type_is_malformed(name: str, value: object) -> None:
    judgement = judged({PLACE: stats(**{name: value})})
    assert judgement.claims == ("vllm",)
    assert judgement.reason is MalformedReason.WRONG_TYPE


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"num_spec_steps": 20.5}, "Expected `int`, got `float` - at `$.num_spec_steps`"),
        ({"num_spec_steps": "canary"}, "Expected `int`, got `str` - at `$.num_spec_steps`"),
        (
            {"acceptance_histogram": [1, "canary"]},
            "Expected `int`, got `str` - at `$.acceptance_histogram[1]`",
        ),
        (
            {"per_step_accepted": {"canary": 1}},
            "Expected `array | null`, got `object` - at `$.per_step_accepted`",
        ),
    ],
)
def test_of_a_wrong_type_the_detail_names_the_key_and_no_value(
    changes: dict[str, Any], detail: str
) -> None:
    assert judged({PLACE: stats(**changes)}).detail == detail


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (MalformedReason.WRONG_TYPE, {"num_spec_steps": 20.0}),
        (MalformedReason.WRONG_TYPE, {"num_draft_tokens": "60"}),
        (MalformedReason.WRONG_TYPE, {"num_spec_tokens": True}),
        (MalformedReason.WRONG_TYPE, {"acceptance_histogram": [8, 0, 6.0, 6]}),
        (MalformedReason.WRONG_TYPE, {"acceptance_histogram": {"none": 8, "2": 6, "3": 6}}),
        (MalformedReason.EXCEEDS_SPEC_TOKENS, {"acceptance_histogram": {"0": 13, "2": 3, "6": 4}}),
        (MalformedReason.WRONG_TYPE, {"acceptance_histogram": None}),
        (MalformedReason.WRONG_TYPE, {"per_step_accepted": [1, None]}),
        (MalformedReason.WRONG_TYPE, {"num_draft_tokens": 2**63}),
        (MalformedReason.WRONG_TYPE, {"num_draft_tokens": -(2**63) - 1}),
        (MalformedReason.WRONG_TYPE, {"num_draft_tokens": 10**1000}),
        (MalformedReason.NEGATIVE_COUNT, {"num_draft_tokens": -1}),
        (MalformedReason.NEGATIVE_COUNT, {"acceptance_histogram": [8, -1, 6, 6]}),
        (MalformedReason.HISTOGRAM_LENGTH, {"acceptance_histogram": [8, 0, 6]}),
        (MalformedReason.HISTOGRAM_LENGTH, {"acceptance_histogram": [8, 0, 6, 6, 0]}),
        (MalformedReason.HISTOGRAM_LENGTH, {"acceptance_histogram": []}),
        (MalformedReason.HISTOGRAM_LENGTH, {"num_spec_tokens": 2}),
        (MalformedReason.HISTOGRAM_LENGTH, {"num_spec_tokens": 0}),
        (MalformedReason.HISTOGRAM_STEPS, {"num_spec_steps": 21}),
        (MalformedReason.HISTOGRAM_ACCEPTED, {"num_accepted_draft_tokens": 31}),
        (MalformedReason.ACCEPTED_EXCEEDS_DRAFTED, {"num_draft_tokens": 29}),
        (MalformedReason.PER_STEP_LENGTH, {"per_step_accepted": [30]}),
        (MalformedReason.PER_STEP_LENGTH, {"per_step_drafted": []}),
        (MalformedReason.PER_STEP_SUM, {"per_step_accepted": [1] * 20}),
        (
            MalformedReason.PER_STEP_EXCEEDS,
            {"per_step_accepted": [3] * 10 + [0] * 10, "per_step_drafted": [2] * 10 + [4] * 10},
        ),
    ],
)
def test_wrong_or_contradictory_counts_are_rejected_whole(
    reason: MalformedReason, changes: dict[str, Any]
) -> None:
    judgement = judged({PLACE: stats(**changes)})
    assert judgement.outcome is RequestOutcome.MALFORMED_STATS
    assert judgement.reason is reason
    assert judgement.record is None


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        [stats()],
        "mean_acceptance_length num_accepted_draft_tokens",
        0,
        True,
        {"speculative_decoding": stats()},
        stats(mean_acceptance_length=...),
        stats(num_accepted_draft_tokens=...),
        {"acceptance_histogram": [1], "num_spec_steps": 1},
    ],
)
def test_what_lacks_the_keys_of_vllm_is_not_claimed(value: object) -> None:
    assert judged({PLACE: value}).outcome is RequestOutcome.UNRECOGNISED_STATS


@pytest.mark.parametrize("raw", [b"", b"{", b'{"mean_acceptance_length":NaN}', b"nonsense"])
def test_bytes_that_are_no_json_are_said_to_be_so(raw: bytes) -> None:
    assert not VLLMAdapter.can_adapt([response({PLACE: raw})])
    assert VLLMAdapter.adapt([response({PLACE: raw})]) == malformed(MalformedReason.NOT_JSON)


def test_json_of_any_depth_does_not_raise() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    raw = b'{"mean_acceptance_length":1.0,"num_accepted_draft_tokens":0,"more":' + deep + b"}"
    assert not VLLMAdapter.can_adapt([response({PLACE: raw})])
    assert VLLMAdapter.adapt([response({PLACE: raw})]) == malformed(MalformedReason.NOT_JSON)
