"""The TensorRT-LLM adapter: derived mean and rate, and a bound that may be unknown."""

from typing import Any

import pytest

from consumer.core.adapters.protocol import malformed
from consumer.core.adapters.registry import judge
from consumer.core.adapters.tensorrt_llm import TensorRTLLMAdapter
from schemas import AcceptanceRecord, MalformedReason, RequestOutcome
from tests.unit.core.adapters.parsed import judged, response, sample

PLACE = "choices[].speculative_decoding"

BASE = AcceptanceRecord(
    engine="tensorrt_llm",
    mean_acceptance_length=2.5,
    draft_acceptance_rate=0.5,
    acceptance_histogram={0: 8, 2: 6, 3: 6},
    num_accepted_draft_tokens=30,
    num_draft_tokens=60,
    num_spec_steps=20,
    num_spec_tokens=3,
    completion_tokens=51,
)


def stats(**changes: Any) -> dict[str, Any]:
    """Return the object of the base case with members changed; `...` takes a member out."""
    members = {
        "acceptance_rate": 0.5,
        "total_accepted_draft_tokens": 30,
        "total_draft_tokens": 60,
        "num_spec_steps": 20,
        "acceptance_histogram": [8, 0, 6, 6],
        "num_spec_tokens": 3,
    } | changes
    return {name: value for name, value in members.items() if value is not ...}


def record_of(**changes: Any) -> AcceptanceRecord:
    record = judged({PLACE: stats(**changes)}).record
    assert record is not None
    return record


@pytest.mark.parametrize("name", ["chat_nonstream_pr19311.json", "chat_stream_pr19311.sse"])
def test_a_sample_gives_exactly_this_record(name: str) -> None:
    assert TensorRTLLMAdapter.can_adapt([sample(f"tensorrt_llm/{name}")])
    assert judge([TensorRTLLMAdapter], sample(f"tensorrt_llm/{name}")).record == BASE


@pytest.mark.parametrize("absent", [None, ...])
def test_without_a_bound_the_histogram_may_end_anywhere(absent: object) -> None:
    record = record_of(num_spec_tokens=absent, acceptance_histogram=[8, 0, 6, 6, 0, 0])
    assert record.num_spec_tokens is None
    assert record.acceptance_histogram == {0: 8, 2: 6, 3: 6}


@pytest.mark.parametrize("rate", [0.4, 1, None, ...])
def test_the_rate_is_that_of_the_counts_whatever_the_engine_states(rate: object) -> None:
    assert record_of(acceptance_rate=rate).draft_acceptance_rate == 0.5


def test_zero_steps_have_neither_mean_nor_rate() -> None:
    record = record_of(
        total_accepted_draft_tokens=0,
        total_draft_tokens=0,
        num_spec_steps=0,
        acceptance_histogram=[0, 0, 0, 0],
        acceptance_rate=None,
    )
    assert record.num_spec_steps == 0
    assert record.acceptance_histogram == {}
    assert record.mean_acceptance_length is None
    assert record.draft_acceptance_rate is None


def test_all_rejected_is_a_mean_of_one_and_a_rate_of_zero() -> None:
    record = record_of(total_accepted_draft_tokens=0, acceptance_histogram=[20, 0, 0, 0])
    assert record.mean_acceptance_length == 1.0
    assert record.draft_acceptance_rate == 0.0


def test_statistics_of_several_choices_belong_to_none_of_them() -> None:
    judgement = judged({PLACE: stats()}, choices=2)
    assert judgement.outcome is RequestOutcome.UNATTRIBUTABLE


def test_no_response_is_no_claim_and_no_record() -> None:
    assert not TensorRTLLMAdapter.can_adapt([])
    assert TensorRTLLMAdapter.adapt([]) is None


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (MalformedReason.WRONG_TYPE, {"total_draft_tokens": 60.0}),
        (MalformedReason.WRONG_TYPE, {"total_accepted_draft_tokens": "30"}),
        (MalformedReason.WRONG_TYPE, {"num_spec_steps": True}),
        (MalformedReason.WRONG_TYPE, {"num_spec_steps": ...}),
        (MalformedReason.WRONG_TYPE, {"acceptance_histogram": ...}),
        (MalformedReason.WRONG_TYPE, {"total_draft_tokens": 2**64}),
        (MalformedReason.NEGATIVE_COUNT, {"total_draft_tokens": -60}),
        (MalformedReason.HISTOGRAM_LENGTH, {"acceptance_histogram": [8, 0, 6, 6, 0]}),
        (MalformedReason.HISTOGRAM_LENGTH, {"acceptance_histogram": [8, 0, 6]}),
        (MalformedReason.HISTOGRAM_LENGTH, {"num_spec_tokens": 0}),
        (MalformedReason.HISTOGRAM_STEPS, {"num_spec_steps": 0}),
        (
            MalformedReason.STEPS_WITHOUT_COUNTS,
            {
                "num_spec_steps": 0,
                "total_accepted_draft_tokens": 0,
                "acceptance_histogram": [0, 0, 0, 0],
            },
        ),
        (MalformedReason.HISTOGRAM_STEPS, {"num_spec_steps": 19}),
        (MalformedReason.WRONG_TYPE, {"acceptance_rate": "0.5"}),
        (MalformedReason.HISTOGRAM_ACCEPTED, {"total_accepted_draft_tokens": 29}),
        (MalformedReason.ACCEPTED_EXCEEDS_DRAFTED, {"total_draft_tokens": 0}),
    ],
)
def test_wrong_or_contradictory_counts_are_rejected_whole(
    reason: MalformedReason, changes: dict[str, Any]
) -> None:
    judgement = judged({PLACE: stats(**changes)})
    assert judgement.claims == ("tensorrt_llm",)
    assert judgement.reason is reason
    assert judgement.record is None


@pytest.mark.parametrize(
    "value",
    [
        {},
        [stats()],
        "total_draft_tokens",
        stats(total_draft_tokens=...),
        stats(total_accepted_draft_tokens=...),
    ],
)
def test_what_lacks_the_keys_of_tensorrt_llm_is_not_claimed(value: object) -> None:
    assert judged({PLACE: value}).outcome is RequestOutcome.UNRECOGNISED_STATS


def test_bytes_that_are_no_json_are_said_to_be_so() -> None:
    cut = response({PLACE: b'{"total_draft_tokens":60,'})
    assert TensorRTLLMAdapter.adapt([cut]) == malformed(MalformedReason.NOT_JSON)
