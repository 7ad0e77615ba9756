"""The SGLang adapter: three families of names, three places, and a nominal number of proposals."""

from typing import Any

import pytest
from msgspec.structs import replace

from consumer.core.adapters.protocol import UNATTRIBUTABLE, malformed
from consumer.core.adapters.registry import judge
from consumer.core.adapters.sglang import SGLangAdapter
from schemas import AcceptanceRecord, MalformedReason, NoStatsReason, RequestOutcome
from tests.unit.core.adapters.parsed import judged, response, sample

META_INFO = "meta_info.spec*"
CHOICE_META_INFO = "choices[].meta_info.spec*"
SGLEXT = "sglext.spec_tokens_details"

STEPS_ONLY = AcceptanceRecord(
    engine="sglang", num_spec_steps=40, completion_tokens=103, draft_tokens_measured=False
)
BASE = AcceptanceRecord(
    engine="sglang",
    mean_acceptance_length=2.55,
    draft_acceptance_rate=0.31,
    acceptance_histogram={0: 10, 1: 12, 2: 8, 3: 6, 4: 4},
    num_accepted_draft_tokens=62,
    num_draft_tokens=200,
    num_spec_steps=40,
    completion_tokens=103,
    draft_tokens_measured=False,
)
COUNTS = replace(BASE, acceptance_histogram=None)
WITHOUT_USAGE = replace(BASE, completion_tokens=None)

# The names of accepted, proposed and histogram, newest first.
FAMILIES = [
    ("spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_correct_drafts_histogram"),
    ("spec_accepted_drafts", "spec_proposed_drafts", "spec_accept_histogram"),
    ("spec_accept_token_num", "spec_draft_token_num", "spec_accept_histogram"),
]


def stats(**changes: Any) -> dict[str, Any]:
    """Return the members of the base case with some changed; `...` takes a member out."""
    members = {
        "spec_accept_rate": 0.31,
        "spec_accept_length": 2.575,
        "spec_num_correct_drafts": 62,
        "spec_num_proposed_drafts": 200,
        "spec_verify_ct": 40,
        "spec_correct_drafts_histogram": [10, 12, 8, 6, 4],
    } | changes
    return {name: value for name, value in members.items() if value is not ...}


def record_of(members: dict[str, Any], place: str = META_INFO) -> AcceptanceRecord:
    record = judged({place: members}).record
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("dynamo/native_generate_sglang_meta_info_passthrough.json", BASE),
        ("sglang/chat_nonstream_return_meta_info.json", BASE),
        ("sglang/chat_nonstream_sglext.json", BASE),
        ("sglang/chat_stream_sglext_with_usage.sse", BASE),
        ("sglang/chat_stream_sglext_without_usage.sse", WITHOUT_USAGE),
        ("sglang/generate_nonstream_dspark_capped.json", BASE),
        ("sglang/generate_nonstream_v0_5_3_and_older.json", STEPS_ONLY),
        ("sglang/generate_nonstream_v0_5_4_to_0_5_5.json", STEPS_ONLY),
        ("sglang/generate_nonstream_v0_5_6_to_0_5_8.json", COUNTS),
        ("sglang/generate_nonstream_v0_5_9_to_0_5_10.json", BASE),
        ("sglang/generate_nonstream_v0_5_12_to_0_5_20_aliases.json", BASE),
        ("sglang/generate_nonstream_v0_5_21_plus.json", BASE),
        ("sglang/generate_stream.sse", BASE),
        ("sglang/generate_nonstream_zero_steps_v0_5_4_to_0_5_8.json", None),
    ],
)
def test_a_sample_gives_exactly_this_record(name: str, record: AcceptanceRecord | None) -> None:
    assert SGLangAdapter.can_adapt([sample(name)])
    assert judge([SGLangAdapter], sample(name)).record == record


@pytest.mark.parametrize("place", [META_INFO, CHOICE_META_INFO, SGLEXT])
@pytest.mark.parametrize(("accepted", "proposed", "histogram"), FAMILIES)
def test_each_family_of_names_gives_the_same_record_at_each_place(
    place: str, accepted: str, proposed: str, histogram: str
) -> None:
    members = {
        "spec_verify_ct": 40,
        accepted: 62,
        proposed: 200,
        histogram: [10, 12, 8, 6, 4],
    }
    assert record_of(members, place) == record_of(stats())


def test_of_two_names_for_one_number_the_newer_counts() -> None:
    record = record_of(
        stats(
            spec_accepted_drafts=1,
            spec_accept_token_num=2,
            spec_proposed_drafts=3,
            spec_draft_token_num=4,
            spec_accept_histogram=[5],
        )
    )
    assert record == record_of(stats())


def test_null_under_a_newer_name_gives_way_to_an_older_one() -> None:
    record = record_of(stats(spec_num_correct_drafts=None, spec_accepted_drafts=62))
    assert record.num_accepted_draft_tokens == 62


@pytest.mark.parametrize("absent", [None, ...])
@pytest.mark.parametrize(
    ("name", "unknown"),
    [
        (
            "spec_num_correct_drafts",
            {"num_accepted_draft_tokens", "mean_acceptance_length", "draft_acceptance_rate"},
        ),
        ("spec_num_proposed_drafts", {"num_draft_tokens", "draft_acceptance_rate"}),
        ("spec_correct_drafts_histogram", {"acceptance_histogram"}),
    ],
)
def test_what_is_not_reported_is_null_with_what_follows_from_it_and_nothing_else(
    name: str, unknown: set[str], absent: object
) -> None:
    record = record_of(stats(**{name: absent}))
    whole = record_of(stats())
    for field in AcceptanceRecord.__struct_fields__:
        expected = None if field in unknown else getattr(whole, field)
        assert getattr(record, field) == expected, field


def test_an_empty_histogram_of_some_steps_is_unknown() -> None:
    assert record_of(stats(spec_correct_drafts_histogram=[])).acceptance_histogram is None


@pytest.mark.parametrize("dense", [[10, 12, 8, 6, 4], [10, 12, 8, 6, 4, 0, 0]])
def test_the_histogram_may_end_at_the_deepest_step_or_later(dense: list[int]) -> None:
    record = record_of(stats(spec_correct_drafts_histogram=dense))
    assert record.acceptance_histogram == {0: 10, 1: 12, 2: 8, 3: 6, 4: 4}
    assert record.num_spec_tokens is None


@pytest.mark.parametrize("length", [1.5, 0.0, "2", None, ...])
def test_the_length_and_the_rate_of_the_engine_are_ignored(length: object) -> None:
    record = record_of(stats(spec_accept_length=length, spec_accept_rate=length))
    assert record.mean_acceptance_length == 2.55
    assert record.draft_acceptance_rate == 0.31


def test_the_counts_of_a_real_capture_give_one_more_than_accepted_by_steps() -> None:
    # sgl-project/sglang PR 33518, comment of 2026-08-07.
    captured = {
        "spec_accept_rate": 0.2930232558139535,
        "spec_accept_length": 2.4651162790697674,
        "spec_num_correct_drafts": 63,
        "spec_num_proposed_drafts": 215,
        "spec_verify_ct": 43,
        "spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3],
    }
    record = record_of(captured, SGLEXT)
    assert record.mean_acceptance_length == 1 + 63 / 43
    assert record.draft_acceptance_rate == 0.2930232558139535


def test_more_accepted_than_nominally_proposed_makes_only_the_proposals_unknown() -> None:
    record = record_of(stats(spec_num_proposed_drafts=61))
    assert record.num_draft_tokens is None
    assert record.draft_acceptance_rate is None
    assert record.num_accepted_draft_tokens == 62
    assert record.num_spec_steps == 40
    assert record.acceptance_histogram == {0: 10, 1: 12, 2: 8, 3: 6, 4: 4}
    assert record.mean_acceptance_length == 2.55


def test_as_many_accepted_as_nominally_proposed_is_a_rate_of_one() -> None:
    record = record_of(stats(spec_num_proposed_drafts=62))
    assert record.draft_acceptance_rate == 1.0


def test_none_accepted_of_none_proposed_has_no_rate() -> None:
    record = record_of(
        {"spec_verify_ct": 3, "spec_num_correct_drafts": 0, "spec_num_proposed_drafts": 0}
    )
    assert record.num_draft_tokens == 0
    assert record.draft_acceptance_rate is None
    assert record.mean_acceptance_length == 1.0


@pytest.mark.parametrize(
    "members",
    [
        {"spec_verify_ct": 0},
        {"spec_verify_ct": 0, "spec_accept_rate": 0.0, "spec_accept_length": 0},
        {"spec_verify_ct": 0, "spec_num_correct_drafts": 0, "spec_num_proposed_drafts": 0},
        {"spec_verify_ct": 0, "spec_correct_drafts_histogram": []},
        {"spec_verify_ct": 0, "spec_correct_drafts_histogram": [0, 0]},
        {"spec_verify_ct": None},
    ],
)
def test_zero_steps_without_counts_are_no_statistics(members: dict[str, Any]) -> None:
    judgement = judged({META_INFO: members})
    assert judgement.outcome is RequestOutcome.NO_STATS
    assert judgement.reason is NoStatsReason.ABSENT


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (MalformedReason.HISTOGRAM_STEPS, {"spec_verify_ct": 0}),
        (
            MalformedReason.STEPS_WITHOUT_COUNTS,
            {"spec_verify_ct": 0, "spec_correct_drafts_histogram": ...},
        ),
        (
            MalformedReason.HISTOGRAM_STEPS,
            {
                "spec_verify_ct": 0,
                "spec_num_correct_drafts": 0,
                "spec_num_proposed_drafts": 0,
                "spec_correct_drafts_histogram": [1],
            },
        ),
        (MalformedReason.WRONG_TYPE, {"spec_verify_ct": 40.0}),
        (MalformedReason.WRONG_TYPE, {"spec_verify_ct": "40"}),
        (MalformedReason.WRONG_TYPE, {"spec_num_correct_drafts": True}),
        (MalformedReason.WRONG_TYPE, {"spec_accepted_drafts": 1.0}),
        (MalformedReason.WRONG_TYPE, {"spec_correct_drafts_histogram": [10, "12"]}),
        (MalformedReason.WRONG_TYPE, {"spec_correct_drafts_histogram": 40}),
        (MalformedReason.WRONG_TYPE, {"spec_verify_ct": 2**63}),
        (MalformedReason.WRONG_TYPE, {"spec_verify_ct": ...}),
        (MalformedReason.WRONG_TYPE, {"spec_verify_ct": None}),
        (MalformedReason.NEGATIVE_COUNT, {"spec_verify_ct": -40}),
        (MalformedReason.NEGATIVE_COUNT, {"spec_num_proposed_drafts": -1}),
        (MalformedReason.NEGATIVE_COUNT, {"spec_correct_drafts_histogram": [-1]}),
        (
            MalformedReason.NEGATIVE_COUNT,
            {
                "spec_verify_ct": 0,
                "spec_num_correct_drafts": -1,
                "spec_num_proposed_drafts": 0,
                "spec_correct_drafts_histogram": [],
            },
        ),
        (MalformedReason.HISTOGRAM_STEPS, {"spec_verify_ct": 41}),
        (MalformedReason.HISTOGRAM_STEPS, {"spec_correct_drafts_histogram": [0]}),
        (MalformedReason.HISTOGRAM_ACCEPTED, {"spec_num_correct_drafts": 63}),
    ],
)
def test_wrong_or_contradictory_counts_are_rejected_whole(
    reason: MalformedReason, changes: dict[str, Any]
) -> None:
    judgement = judged({META_INFO: stats(**changes)})
    assert judgement.claims == ("sglang",)
    assert judgement.reason is reason
    assert judgement.record is None


def test_two_places_that_agree_are_one_record() -> None:
    in_sglext = stats(spec_accept_length=0.0, spec_cap_lens_histogram=[])
    both = judged({CHOICE_META_INFO: stats(), SGLEXT: in_sglext})
    assert both.record == record_of(stats())


@pytest.mark.parametrize(
    "changes",
    [
        {"spec_verify_ct": 41},
        {"spec_num_correct_drafts": 61},
        {"spec_num_proposed_drafts": 199},
        {"spec_num_proposed_drafts": None},
        {"spec_correct_drafts_histogram": [10, 12, 8, 10]},
        {"spec_correct_drafts_histogram": []},
    ],
)
@pytest.mark.parametrize("place", [META_INFO, CHOICE_META_INFO])
def test_two_places_that_disagree_are_malformed(place: str, changes: dict[str, Any]) -> None:
    judgement = judged({place: stats(), SGLEXT: stats(**changes)})
    assert judgement.reason is MalformedReason.PLACES_DISAGREE


def test_a_place_with_members_of_an_unknown_family_does_not_speak_against_another() -> None:
    judgement = judged({META_INFO: {"spec_decoding_v2": {"steps": 1}}, SGLEXT: stats()})
    assert judgement.record == record_of(stats())


def test_a_list_belongs_to_no_one_generation_even_if_it_has_one_element() -> None:
    judgement = judged({SGLEXT: [stats()]})
    assert judgement.claims == ("sglang",)
    assert judgement.outcome is RequestOutcome.UNATTRIBUTABLE
    assert SGLangAdapter.adapt([response({SGLEXT: []})]) == UNATTRIBUTABLE


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        [{}],
        [1, stats()],
        "spec_verify_ct",
        40,
        {"spec_accept_rate": 0.5, "spec_accept_length": 2.0},
        {"spec_cap_length": 2.65},
        {"speculative_decoding_stats": {"num_verify_steps": 40}},
        {"spec_decoding": stats()},
    ],
)
@pytest.mark.parametrize("place", [META_INFO, CHOICE_META_INFO, SGLEXT])
def test_what_has_no_known_name_is_not_claimed(place: str, value: object) -> None:
    assert judged({place: value}).outcome is RequestOutcome.UNRECOGNISED_STATS


def test_no_response_is_no_claim_and_no_record() -> None:
    assert not SGLangAdapter.can_adapt([])
    assert SGLangAdapter.adapt([]) is None


def test_bytes_that_are_no_json_are_said_to_be_so() -> None:
    cut = response({META_INFO: b'{"spec_verify_ct":40'})
    assert SGLangAdapter.adapt([cut]) == malformed(MalformedReason.NOT_JSON)
