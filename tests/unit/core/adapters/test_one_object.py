"""Engines that report all their numbers in one object: exact records, claims and refusals."""

from typing import Any

import pytest
from msgspec.structs import replace

from consumer.core.adapters.protocol import malformed
from consumer.core.adapters.smg import SmgAdapter
from consumer.core.outcomes import RequestResult
from schemas import AcceptanceRecord, MalformedReason, NoStatsReason, RequestOutcome
from tests.paths import SAMPLES
from tests.unit.core.adapters.parsed import judged, response, sample
from tests.unit.core.made import ADAPTERS, outcomes_of

LLAMACPP = AcceptanceRecord(
    engine="llamacpp",
    draft_acceptance_rate=0.5,
    num_accepted_draft_tokens=30,
    num_draft_tokens=60,
    completion_tokens=51,
)
MLX_VLM = AcceptanceRecord(
    engine="mlx_vlm",
    mean_acceptance_length=3.7,
    draft_acceptance_rate=0.9,
    num_accepted_draft_tokens=81,
    num_draft_tokens=90,
    num_spec_steps=30,
    completion_tokens=111,
)
LMSTUDIO = AcceptanceRecord(
    engine="lmstudio",
    draft_acceptance_rate=176 / 492,
    num_accepted_draft_tokens=176,
    num_draft_tokens=492,
    completion_tokens=300,
)
TOKENSPEED = AcceptanceRecord(
    engine="tokenspeed",
    mean_acceptance_length=2.55,
    draft_acceptance_rate=0.31,
    num_accepted_draft_tokens=62,
    num_draft_tokens=200,
    num_spec_steps=40,
    completion_tokens=103,
    draft_tokens_measured=False,
)
FASTDEPLOY = AcceptanceRecord(
    engine="fastdeploy",
    mean_acceptance_length=1 + 68 / 60,
    draft_acceptance_rate=68 / 180,
    acceptance_histogram={0: 24, 1: 13, 2: 14, 3: 9},
    num_accepted_draft_tokens=68,
    num_draft_tokens=180,
    num_spec_steps=60,
    completion_tokens=128,
    draft_tokens_measured=False,
)
VLLM = AcceptanceRecord(
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
SGLANG_SUMMARY = AcceptanceRecord(
    engine="sglang",
    mean_acceptance_length=3.5,
    draft_acceptance_rate=5 / 9,
    num_accepted_draft_tokens=5,
    num_draft_tokens=9,
    num_spec_steps=2,
    completion_tokens=128,
)
SGLANG_DETAILED = replace(
    SGLANG_SUMMARY,
    acceptance_histogram={2: 1, 3: 1},
    completion_tokens=6,
    per_step_accepted=[3, 2],
    per_step_drafted=[5, 4],
)
# Below the engines, as `record_of` finds them in a whole log.
RECORDS = {
    "fastdeploy/chat_nonstream_pr5947.json": FASTDEPLOY,
    "fastdeploy/chat_stream_pr5947.sse": FASTDEPLOY,
    "llamacpp/chat_nonstream.json": LLAMACPP,
    "llamacpp/chat_nonstream_all_rejected.json": replace(
        LLAMACPP, draft_acceptance_rate=0.0, num_accepted_draft_tokens=0, completion_tokens=21
    ),
    "llamacpp/chat_stream_include_usage.sse": LLAMACPP,
    "llamacpp/chat_stream_without_usage.sse": replace(LLAMACPP, completion_tokens=None),
    "llamacpp/completion_native_nonstream.json": LLAMACPP,
    "llamacpp/completion_native_stream_no_done.sse": LLAMACPP,
    "llamacpp/proposed_pr27676_verif_steps_not_merged.json": replace(
        LLAMACPP, num_spec_steps=20, mean_acceptance_length=2.5
    ),
    "llamacpp/responses_stream_no_done.sse": LLAMACPP,
    "lmstudio/api_v0_stats_draft_counts_0_3_10.json": replace(
        LMSTUDIO,
        num_accepted_draft_tokens=54,
        num_draft_tokens=72,
        draft_acceptance_rate=0.75,
        completion_tokens=100,
    ),
    "lmstudio/api_v0_usage_draft_counts_0_4_24.json": LMSTUDIO,
    "lmstudio/openai_v1_stats_draft_counts.json": LMSTUDIO,
    "mlx_vlm/chat_nonstream_mtp.json": MLX_VLM,
    "sglang/proposed_pr34814_chat_nonstream_summary.json": SGLANG_SUMMARY,
    "sglang/proposed_pr34814_chat_stream_detailed.sse": SGLANG_DETAILED,
    "sglang/proposed_pr34814_generate_detailed.json": SGLANG_DETAILED,
    "tokenspeed/generate_nonstream_pr1443.json": TOKENSPEED,
    "vllm/prerelease_choice_speculative_decoding_stats.json": VLLM,
}


def acceptance_of(result: RequestResult) -> AcceptanceRecord:
    """Return the numbers of a published record."""
    record = result.record
    assert record is not None
    names = AcceptanceRecord.__struct_fields__
    return AcceptanceRecord(**{name: getattr(record, name) for name in names})


@pytest.mark.parametrize("name", RECORDS)
def test_a_sample_gives_exactly_this_record(name: str) -> None:
    [result] = outcomes_of([(SAMPLES / "engines" / name).read_bytes()])
    assert acceptance_of(result) == RECORDS[name]
    assert result.differing == ()


@pytest.mark.parametrize("name", RECORDS)
def test_a_sample_is_claimed_by_its_engine_alone(name: str) -> None:
    claims = [adapter.engine for adapter in ADAPTERS if adapter.can_adapt([sample(name)])]
    assert claims == [RECORDS[name].engine]


# Of each place: numbers that are right, its engine, and which of them are counts.
RIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "timings.draft*": ("llamacpp", {"draft_n": 60, "draft_n_accepted": 30}),
    "stats.*_draft_tokens_count": (
        "lmstudio",
        {"total_draft_tokens_count": 60, "accepted_draft_tokens_count": 30},
    ),
    "usage.*_draft_tokens_count": (
        "lmstudio",
        {"total_draft_tokens_count": 60, "accepted_draft_tokens_count": 30},
    ),
    "meta_info.spec*": (
        "tokenspeed",
        {"spec_verify_ct": 20, "spec_accepted_tokens": 30, "spec_draft_tokens": 60},
    ),
    "choices[].speculate_metrics": (
        "fastdeploy",
        {
            "accepted_tokens": 50,
            "rejected_tokens": 30,
            "accepted_tokens_per_head": [20, 12, 12, 6],
        },
    ),
}
CASES = [(place, engine, stats) for place, (engine, stats) in RIGHT.items()]
COUNTS = [
    (place, engine, stats, name)
    for place, engine, stats in CASES
    for name, value in stats.items()
    if type(value) is int
]


@pytest.mark.parametrize(("place", "engine", "stats"), CASES)
def test_right_numbers_are_published_with_the_rate_of_their_counts(
    place: str, engine: str, stats: dict[str, Any]
) -> None:
    judgement = judged({place: stats | {"unknown": "member"}})
    assert judgement.claims == (engine,)
    assert judgement.record is not None
    assert judgement.record.draft_acceptance_rate == 0.5


@pytest.mark.parametrize(("place", "engine", "stats", "name"), COUNTS)
@pytest.mark.parametrize("value", ["30", 30.0, True, 2**63, [30]])
def test_a_count_that_is_not_an_integer_of_63_bits_is_malformed(
    place: str, engine: str, stats: dict[str, Any], name: str, value: object
) -> None:
    judgement = judged({place: stats | {name: value}})
    assert (judgement.claims, judgement.reason) == ((engine,), MalformedReason.WRONG_TYPE)


@pytest.mark.parametrize(("place", "engine", "stats", "name"), COUNTS)
def test_a_negative_count_is_never_published(
    place: str, engine: str, stats: dict[str, Any], name: str
) -> None:
    judgement = judged({place: stats | {name: -1}})
    assert (judgement.claims, judgement.record) == ((engine,), None)
    assert judgement.outcome is RequestOutcome.MALFORMED_STATS


@pytest.mark.parametrize(("place", "engine", "stats"), CASES)
def test_numbers_that_are_all_zero_are_no_statistics(
    place: str, engine: str, stats: dict[str, Any]
) -> None:
    zeros: dict[str, Any] = {
        name: [] if isinstance(value, list) else 0 for name, value in stats.items()
    }
    judgement = judged({place: zeros})
    assert (judgement.claims, judgement.reason) == ((engine,), NoStatsReason.ABSENT)


@pytest.mark.parametrize(("place", "engine", "stats"), CASES)
def test_with_several_choices_the_numbers_belong_to_none_of_them(
    place: str, engine: str, stats: dict[str, Any]
) -> None:
    assert judged({place: stats}, choices=2).outcome is RequestOutcome.UNATTRIBUTABLE
    del engine


@pytest.mark.parametrize(("place", "engine", "stats"), CASES)
@pytest.mark.parametrize("raw", [b"", b"{", b"nonsense", b'"draft_n"', b"[]"])
def test_what_is_not_the_object_is_not_claimed(
    place: str, engine: str, stats: dict[str, Any], raw: bytes
) -> None:
    assert judged({place: raw}).outcome is RequestOutcome.UNRECOGNISED_STATS
    [adapter] = [each for each in ADAPTERS if each.engine == engine]
    assert not adapter.can_adapt([])
    assert adapter.adapt([]) is None
    answer = adapter.adapt([response({place: raw})])
    reasons = (MalformedReason.NOT_JSON, MalformedReason.WRONG_TYPE)
    assert getattr(answer, "reason", None) in reasons
    del stats


@pytest.mark.parametrize("name", ["draft_n", "draft_n_accepted"])
def test_timings_with_one_of_the_two_counts_are_not_llamacpp(name: str) -> None:
    assert judged({"timings.draft*": {name: 3}}).outcome is RequestOutcome.UNRECOGNISED_STATS


def test_rounds_of_a_drafter_make_timings_those_of_mlx_vlm() -> None:
    timings = {"draft_n": 9, "draft_n_accepted": 6, "draft_rounds": 3, "draft_kind": "mtp"}
    judgement = judged({"timings.draft*": timings})
    assert judgement.claims == ("mlx_vlm",)
    assert judgement.record is not None
    assert judgement.record.mean_acceptance_length == 3.0


def test_two_places_of_lm_studio_that_disagree_are_malformed() -> None:
    _, stats = RIGHT["stats.*_draft_tokens_count"]
    other = stats | {"accepted_draft_tokens_count": 31}
    judgement = judged({"stats.*_draft_tokens_count": stats, "usage.*_draft_tokens_count": other})
    assert judgement.reason is MalformedReason.PLACES_DISAGREE


@pytest.mark.parametrize(
    "heads", [[], [20, 12, 12, 7], [12, 20, 12, 6], [20, 30, 0, 0], [51], [50, -1, 1]]
)
def test_tokens_by_head_that_do_not_add_up_are_malformed(heads: list[int]) -> None:
    _, stats = RIGHT["choices[].speculate_metrics"]
    changed = stats | {"accepted_tokens_per_head": heads}
    judgement = judged({"choices[].speculate_metrics": changed})
    assert judgement.claims == ("fastdeploy",)
    assert judgement.reason is MalformedReason.HISTOGRAM_ACCEPTED


EXACT = {
    "num_verification_steps": 2,
    "num_verified_draft_tokens": 9,
    "num_accepted_draft_tokens": 5,
    "mean_accept_length": 3.5,
    "draft_acceptance_rate": 5 / 9,
    "verify_lengths": [6, 5],
    "accept_lengths": [4, 3],
}
NOMINAL = {"spec_verify_ct": 2, "spec_num_correct_drafts": 5, "spec_num_proposed_drafts": 196}
META_INFO, SGLEXT = "meta_info.spec*", "sglext.speculative_decoding_stats"


def test_exact_counts_of_sglang_are_measured_and_win_over_nominal_ones() -> None:
    both = judged({META_INFO: NOMINAL | {"speculative_decoding_stats": EXACT}, SGLEXT: [EXACT]})
    assert both.record is not None
    assert both.record.draft_tokens_measured
    assert both.record.num_draft_tokens == 9


@pytest.mark.parametrize("name", ["spec_verify_ct", "spec_num_correct_drafts"])
def test_exact_counts_that_contradict_the_others_are_malformed(name: str) -> None:
    members = NOMINAL | {name: 3, "speculative_decoding_stats": EXACT}
    assert judged({META_INFO: members}).reason is MalformedReason.PLACES_DISAGREE


@pytest.mark.parametrize("value", [[EXACT, EXACT], []])
def test_exact_counts_of_several_choices_belong_to_none_of_them(value: list[Any]) -> None:
    judgement = judged({SGLEXT: value, "sglext.spec_tokens_details": NOMINAL})
    assert judgement.outcome is RequestOutcome.UNATTRIBUTABLE


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (MalformedReason.WRONG_TYPE, {"num_verified_draft_tokens": "9"}),
        (MalformedReason.PER_STEP_LENGTH, {"verify_lengths": [10]}),
        (MalformedReason.PER_STEP_SUM, {"verify_lengths": [6, 6]}),
        (MalformedReason.NEGATIVE_COUNT, {"verify_lengths": [11, 0]}),
        (MalformedReason.HISTOGRAM_ACCEPTED, {"accept_lengths": [4, 4]}),
    ],
)
def test_exact_counts_obey_the_identities(reason: MalformedReason, changes: dict[str, Any]) -> None:
    assert judged({SGLEXT: [EXACT | changes]}).reason is reason


# smg, which a setting adds


def smg(name: str) -> RequestResult:
    sent = (SAMPLES / "engines" / "smg" / name).read_bytes()
    [result] = outcomes_of([sent], prediction_tokens="drafts")
    return result


@pytest.mark.parametrize(
    "name",
    [
        "chat_nonstream_usage_prediction_tokens.json",
        "chat_stream_usage_prediction_tokens.sse",
    ],
)
def test_prediction_tokens_are_drafts_where_the_setting_says_so(name: str) -> None:
    assert acceptance_of(smg(name)) == replace(LLAMACPP, engine="smg", draft_tokens_measured=False)


@pytest.mark.parametrize("name", ["chat_no_prediction_zeros", "chat_predicted_outputs_usage"])
def test_without_the_setting_prediction_tokens_are_those_of_predicted_outputs(name: str) -> None:
    [result] = outcomes_of([(SAMPLES / "engines/openai" / f"{name}.json").read_bytes()])
    assert result.reason is NoStatsReason.ABSENT


def test_prediction_tokens_that_are_zero_are_no_statistics() -> None:
    zeros = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    assert SmgAdapter.adapt([response({SmgAdapter.places[0]: zeros})]) is None


def test_prediction_tokens_that_are_not_counts_are_malformed() -> None:
    wrong = {"accepted_prediction_tokens": 1.5, "rejected_prediction_tokens": 0}
    answer = SmgAdapter.adapt([response({SmgAdapter.places[0]: wrong})])
    expected = malformed(
        MalformedReason.WRONG_TYPE,
        "Expected `int`, got `float` - at `$.accepted_prediction_tokens`",
    )
    assert answer == expected
