"""The identities of the acceptance record: each one breaks alone, and null breaks none."""

import math
from typing import Any

import pytest
from msgspec.structs import replace

from schemas import (
    AcceptanceRecord,
    MalformedReason,
    differing_statements,
    violated_identity,
    with_derived,
)

RECORD = AcceptanceRecord(
    engine="any",
    mean_acceptance_length=2.5,
    draft_acceptance_rate=0.5,
    acceptance_histogram={0: 1, 2: 2, 3: 1},
    num_accepted_draft_tokens=7,
    num_draft_tokens=11,
    num_spec_steps=4,
    num_spec_tokens=3,
    completion_tokens=12,
    per_step_accepted=[2, 0, 3, 2],
    per_step_drafted=[2, 3, 3, 3],
)
COUNTS = [
    "num_accepted_draft_tokens",
    "num_draft_tokens",
    "num_spec_steps",
    "num_spec_tokens",
    "completion_tokens",
]
NULLABLE = [name for name in AcceptanceRecord.__struct_fields__ if name.startswith(("num", "per"))]


def test_a_record_whose_numbers_agree_breaks_nothing() -> None:
    assert violated_identity(RECORD) is None


def test_mean_and_rate_follow_from_the_counts_where_an_adapter_left_them_out() -> None:
    bare = AcceptanceRecord(
        engine="any", num_accepted_draft_tokens=30, num_draft_tokens=60, num_spec_steps=20
    )
    derived = with_derived(bare)
    assert (derived.mean_acceptance_length, derived.draft_acceptance_rate) == (2.5, 0.5)


@pytest.mark.parametrize(
    "counts",
    [
        {"num_spec_steps": 20},
        {"num_accepted_draft_tokens": 0, "num_draft_tokens": 0, "num_spec_steps": 0},
        {"num_accepted_draft_tokens": 3},
    ],
)
def test_mean_and_rate_stay_null_where_they_do_not_follow(counts: dict[str, int]) -> None:
    bare = replace(AcceptanceRecord(engine="any"), **counts)
    assert with_derived(bare) == bare


def test_mean_and_rate_follow_from_the_counts_whatever_the_engine_states() -> None:
    stated = replace(RECORD, mean_acceptance_length=9.9, draft_acceptance_rate=1.7)
    record = with_derived(stated)
    assert (record.mean_acceptance_length, record.draft_acceptance_rate) == (1 + 7 / 4, 7 / 11)


def test_without_counts_a_mean_and_a_rate_are_as_the_engine_states_them() -> None:
    stated = AcceptanceRecord(
        engine="any", mean_acceptance_length=2.5, draft_acceptance_rate=0.5, num_spec_steps=4
    )
    assert with_derived(stated) is stated


@pytest.mark.parametrize(
    ("mean", "rate", "names"),
    [
        (2.75, 0.64, ()),
        (2.755, 0.636, ()),
        (None, None, ()),
        (2.76, 0.63, ("mean_acceptance_length", "draft_acceptance_rate")),
        (3.0, 0.64, ("mean_acceptance_length",)),
        (2.75, 1.7, ("draft_acceptance_rate",)),
        (math.nan, math.inf, ("mean_acceptance_length", "draft_acceptance_rate")),
    ],
)
def test_a_statement_differs_from_the_counts_by_more_than_rounding(
    mean: float | None, rate: float | None, names: tuple[str, ...]
) -> None:
    stated = replace(RECORD, mean_acceptance_length=mean, draft_acceptance_rate=rate)
    assert differing_statements(stated, with_derived(stated)) == names


def test_a_record_that_knows_nothing_breaks_nothing() -> None:
    assert violated_identity(AcceptanceRecord(engine="any")) is None


@pytest.mark.parametrize(
    "name", [*NULLABLE, "acceptance_histogram", "mean_acceptance_length", "draft_acceptance_rate"]
)
def test_a_number_that_is_null_breaks_nothing(name: str) -> None:
    assert violated_identity(replace(RECORD, **{name: None})) is None


def test_zero_steps_break_nothing() -> None:
    record = AcceptanceRecord(
        engine="any",
        mean_acceptance_length=1.0,
        draft_acceptance_rate=0.0,
        acceptance_histogram={},
        num_accepted_draft_tokens=0,
        num_draft_tokens=0,
        num_spec_steps=0,
        per_step_accepted=[],
        per_step_drafted=[],
    )
    assert violated_identity(record) is None


def test_a_mean_and_a_rate_beside_counts_are_held_against_nothing() -> None:
    record = replace(RECORD, mean_acceptance_length=0.5, draft_acceptance_rate=9.0)
    assert violated_identity(record) is None


def test_completion_tokens_are_held_against_nothing() -> None:
    assert violated_identity(replace(RECORD, completion_tokens=1_000_000)) is None


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [True, 4.0, "4", [4]])
def test_a_count_that_is_no_integer_is_of_a_wrong_type(name: str, value: Any) -> None:
    assert violated_identity(replace(RECORD, **{name: value})) is MalformedReason.WRONG_TYPE


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_below_zero_is_negative(name: str) -> None:
    assert violated_identity(replace(RECORD, **{name: -1})) is MalformedReason.NEGATIVE_COUNT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in ("mean_acceptance_length", "draft_acceptance_rate")
            for value in (math.nan, math.inf, -math.inf, -1.0)
        ),
        ("mean_acceptance_length", 0.99),
        ("draft_acceptance_rate", 1.01),
    ],
)
@pytest.mark.parametrize("missing", [None, 0])
def test_a_mean_or_rate_that_no_counts_give_stays_within_its_bounds(
    name: str, value: float, missing: int | None
) -> None:
    stated = AcceptanceRecord(
        engine="any",
        num_accepted_draft_tokens=0,
        num_spec_steps=missing,
        num_draft_tokens=missing,
    )
    assert violated_identity(replace(stated, **{name: value})) is MalformedReason.OUT_OF_RANGE


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (MalformedReason.WRONG_TYPE, {"acceptance_histogram": {"0": 4}}),
        (MalformedReason.WRONG_TYPE, {"acceptance_histogram": {0: 1.0, 2: 2, 3: 1}}),
        (MalformedReason.WRONG_TYPE, {"per_step_accepted": [2, False, 3, 2]}),
        (MalformedReason.NEGATIVE_COUNT, {"acceptance_histogram": {-1: 1, 2: 2, 3: 1}}),
        (MalformedReason.NEGATIVE_COUNT, {"acceptance_histogram": {0: -1, 2: 2, 3: 1}}),
        (MalformedReason.NEGATIVE_COUNT, {"per_step_drafted": [2, -3, 3, 3]}),
        (MalformedReason.ACCEPTED_EXCEEDS_DRAFTED, {"num_draft_tokens": 6}),
        (MalformedReason.HISTOGRAM_STEPS, {"num_spec_steps": 5}),
        (MalformedReason.HISTOGRAM_STEPS, {"acceptance_histogram": {}}),
        (MalformedReason.HISTOGRAM_ACCEPTED, {"acceptance_histogram": {0: 2, 2: 1, 3: 1}}),
        (MalformedReason.HISTOGRAM_ACCEPTED, {"num_accepted_draft_tokens": 8}),
        (MalformedReason.EXCEEDS_SPEC_TOKENS, {"num_spec_tokens": 2}),
        (
            MalformedReason.STEPS_WITHOUT_COUNTS,
            {"num_spec_steps": 0, "acceptance_histogram": None},
        ),
        (MalformedReason.PER_STEP_LENGTH, {"per_step_accepted": [2, 0, 3, 2, 0]}),
        (MalformedReason.PER_STEP_LENGTH, {"per_step_drafted": []}),
        (
            MalformedReason.PER_STEP_LENGTH,
            {
                "num_spec_steps": None,
                "acceptance_histogram": None,
                "per_step_drafted": [2, 3, 6],
            },
        ),
        (MalformedReason.PER_STEP_SUM, {"per_step_accepted": [2, 0, 3, 1]}),
        (MalformedReason.PER_STEP_SUM, {"per_step_drafted": [2, 3, 3, 4]}),
        (MalformedReason.PER_STEP_EXCEEDS, {"per_step_drafted": [1, 4, 3, 3]}),
    ],
)
def test_numbers_that_contradict_each_other_break_the_identity_named(
    reason: MalformedReason, changes: dict[str, Any]
) -> None:
    assert violated_identity(replace(RECORD, **changes)) is reason


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (MalformedReason.EXCEEDS_SPEC_TOKENS, {"num_spec_tokens": 1}),
        (MalformedReason.HISTOGRAM_STEPS, {"num_spec_steps": 3}),
        (MalformedReason.HISTOGRAM_ACCEPTED, {"num_accepted_draft_tokens": 6}),
    ],
)
def test_the_histogram_is_held_against_each_number_by_itself(
    reason: MalformedReason, changes: dict[str, Any]
) -> None:
    histogram = AcceptanceRecord(engine="any", acceptance_histogram={0: 1, 2: 2, 3: 1})
    assert violated_identity(replace(histogram, **changes)) is reason
