"""The registry: one adapter speaks for a response, and none can stop the service."""

from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from consumer.core.adapters import registry
from consumer.core.adapters.protocol import (
    ENTRY_POINT_GROUP,
    UNATTRIBUTABLE,
    Refusal,
    SpecDecodeAdapter,
    malformed,
)
from consumer.core.adapters.registry import AdapterError, Judgement, judge, load_adapters, places_of
from consumer.core.adapters.vllm import VLLMAdapter
from schemas import (
    AcceptanceRecord,
    MalformedReason,
    NoStatsReason,
    ParsedResponse,
    RequestOutcome,
)
from tests.paths import SAMPLES
from tests.unit.core.adapters.parsed import ADAPTERS, judged, response, sample

PUBLISHED = RequestOutcome.PUBLISHED
UNATTRIBUTED = RequestOutcome.UNATTRIBUTABLE
ABSENT = RequestOutcome.NO_STATS

# Every sample that has something at a declared place, with its outcome and whose it is.
WITH_STATS = {
    "dynamo/native_generate_sglang_meta_info_passthrough.json": (PUBLISHED, "sglang"),
    "fastdeploy/chat_nonstream_pr5947.json": (PUBLISHED, "fastdeploy"),
    "fastdeploy/chat_stream_pr5947.sse": (PUBLISHED, "fastdeploy"),
    "llamacpp/captured_pr12603_counts.json": (PUBLISHED, "llamacpp"),
    "llamacpp/chat_nonstream.json": (PUBLISHED, "llamacpp"),
    "llamacpp/chat_nonstream_all_rejected.json": (PUBLISHED, "llamacpp"),
    "llamacpp/chat_nonstream_n2_timings_of_first_choice_only.json": (UNATTRIBUTED, "llamacpp"),
    "llamacpp/chat_stream_include_usage.sse": (PUBLISHED, "llamacpp"),
    "llamacpp/chat_stream_without_usage.sse": (PUBLISHED, "llamacpp"),
    "llamacpp/completion_native_nonstream.json": (PUBLISHED, "llamacpp"),
    "llamacpp/completion_native_stream_no_done.sse": (PUBLISHED, "llamacpp"),
    "llamacpp/proposed_pr27676_verif_steps_not_merged.json": (PUBLISHED, "llamacpp"),
    "llamacpp/responses_stream_no_done.sse": (PUBLISHED, "llamacpp"),
    "lmstudio/api_v0_stats_draft_counts_0_3_10.json": (PUBLISHED, "lmstudio"),
    "lmstudio/api_v0_usage_draft_counts_0_4_24.json": (PUBLISHED, "lmstudio"),
    "lmstudio/openai_v1_stats_draft_counts.json": (PUBLISHED, "lmstudio"),
    "mlx_vlm/chat_nonstream_mtp.json": (PUBLISHED, "mlx_vlm"),
    "sglang/chat_nonstream_n2_sglext_list.json": (UNATTRIBUTED, "sglang"),
    "sglang/chat_nonstream_return_meta_info.json": (PUBLISHED, "sglang"),
    "sglang/chat_nonstream_sglext.json": (PUBLISHED, "sglang"),
    "sglang/chat_stream_n2_sglext_list.sse": (UNATTRIBUTED, "sglang"),
    "sglang/chat_stream_sglext_with_usage.sse": (PUBLISHED, "sglang"),
    "sglang/chat_stream_sglext_without_usage.sse": (PUBLISHED, "sglang"),
    "sglang/completions_two_prompts_n1_first_prompt_only.json": (UNATTRIBUTED, "sglang"),
    "sglang/generate_nonstream_dspark_capped.json": (PUBLISHED, "sglang"),
    "sglang/generate_nonstream_n2_list.json": (UNATTRIBUTED, "sglang"),
    "sglang/generate_nonstream_v0_5_12_to_0_5_20_aliases.json": (PUBLISHED, "sglang"),
    "sglang/generate_nonstream_v0_5_21_plus.json": (PUBLISHED, "sglang"),
    "sglang/generate_nonstream_v0_5_3_and_older.json": (PUBLISHED, "sglang"),
    "sglang/generate_nonstream_v0_5_4_to_0_5_5.json": (PUBLISHED, "sglang"),
    "sglang/generate_nonstream_v0_5_6_to_0_5_8.json": (PUBLISHED, "sglang"),
    "sglang/generate_nonstream_v0_5_9_to_0_5_10.json": (PUBLISHED, "sglang"),
    "sglang/generate_nonstream_zero_steps_v0_5_4_to_0_5_8.json": (ABSENT, "sglang"),
    "sglang/generate_stream.sse": (PUBLISHED, "sglang"),
    "sglang/proposed_pr34814_chat_nonstream_summary.json": (PUBLISHED, "sglang"),
    "sglang/proposed_pr34814_chat_stream_detailed.sse": (PUBLISHED, "sglang"),
    "sglang/proposed_pr34814_generate_detailed.json": (PUBLISHED, "sglang"),
    "tensorrt_llm/chat_nonstream_n2_per_choice.json": (UNATTRIBUTED, "tensorrt_llm"),
    "tensorrt_llm/chat_nonstream_pr19311.json": (PUBLISHED, "tensorrt_llm"),
    "tensorrt_llm/chat_stream_pr19311.sse": (PUBLISHED, "tensorrt_llm"),
    "tokenspeed/generate_nonstream_no_verify_steps.json": (ABSENT, "sglang"),
    "tokenspeed/generate_nonstream_pr1443.json": (PUBLISHED, "tokenspeed"),
    "vllm/chat_nonstream_all_rejected.json": (PUBLISHED, "vllm"),
    "vllm/chat_nonstream_detailed_with_timing.json": (PUBLISHED, "vllm"),
    "vllm/chat_nonstream_summary.json": (PUBLISHED, "vllm"),
    "vllm/chat_nonstream_variable_draft_detailed.json": (PUBLISHED, "vllm"),
    "vllm/chat_nonstream_zero_steps.json": (PUBLISHED, "vllm"),
    "vllm/chat_stream_detailed_with_timing.sse": (PUBLISHED, "vllm"),
    "vllm/chat_stream_summary.sse": (PUBLISHED, "vllm"),
    "vllm/chat_stream_zero_steps.sse": (PUBLISHED, "vllm"),
    "vllm/completions_nonstream_summary.json": (PUBLISHED, "vllm"),
    "vllm/completions_stream_summary.sse": (PUBLISHED, "vllm"),
    "vllm/inference_generate_nonstream.json": (PUBLISHED, "vllm"),
    "vllm/prerelease_choice_speculative_decoding_stats.json": (PUBLISHED, "vllm"),
}
UNRECOGNISED = "fastdeploy/chat_nonstream_without_heads.json"
EVERY_SAMPLE = sorted(
    path.relative_to(SAMPLES / "engines").as_posix()
    for path in (SAMPLES / "engines").rglob("*.*")
    if path.is_file()
)

VLLM = {
    "mean_acceptance_length": 1.0,
    "draft_acceptance_rate": 0.0,
    "acceptance_histogram": [1],
    "num_spec_steps": 1,
    "num_accepted_draft_tokens": 0,
    "num_draft_tokens": 0,
}
TENSORRT_LLM = {"total_accepted_draft_tokens": 0, "total_draft_tokens": 0}
SGLANG = {"spec_verify_ct": 1}


@pytest.mark.parametrize("name", sorted(WITH_STATS))
def test_a_sample_with_statistics_has_this_outcome(name: str) -> None:
    outcome, engine = WITH_STATS[name]
    judgement = judge(ADAPTERS, sample(name))
    assert judgement.outcome is outcome
    assert judgement.failures == ()
    assert judgement.record is None or judgement.record.engine == engine


@pytest.mark.parametrize("name", sorted(WITH_STATS))
def test_a_sample_of_one_engine_is_claimed_by_its_adapter_alone(name: str) -> None:
    claims = [adapter.engine for adapter in ADAPTERS if adapter.can_adapt([sample(name)])]
    assert claims == [WITH_STATS[name][1]]


@pytest.mark.parametrize("name", sorted(set(EVERY_SAMPLE) - WITH_STATS.keys() - {UNRECOGNISED}))
def test_every_other_sample_has_nothing_at_a_declared_place(name: str) -> None:
    assert sample(name).stats == {}
    assert not any(adapter.can_adapt([sample(name)]) for adapter in ADAPTERS)


def test_the_table_names_only_samples_that_exist() -> None:
    assert set(EVERY_SAMPLE) > WITH_STATS.keys()
    assert len(EVERY_SAMPLE) == 87


def test_counts_from_which_no_steps_follow_are_not_claimed() -> None:
    assert judge(ADAPTERS, sample(UNRECOGNISED)).outcome is RequestOutcome.UNRECOGNISED_STATS


@pytest.mark.parametrize(
    ("stats", "claims"),
    [
        (
            {"metrics.speculative_decoding": VLLM, "choices[].speculative_decoding": TENSORRT_LLM},
            ("tensorrt_llm", "vllm"),
        ),
        (
            {"metrics.speculative_decoding": VLLM, "sglext.spec_tokens_details": SGLANG},
            ("sglang", "vllm"),
        ),
        (
            {"choices[].speculative_decoding": TENSORRT_LLM, "meta_info.spec*": SGLANG},
            ("sglang", "tensorrt_llm"),
        ),
    ],
)
def test_a_response_with_the_keys_of_two_engines_is_ambiguous(
    stats: dict[str, Any], claims: tuple[str, ...]
) -> None:
    assert judged(stats) == Judgement(RequestOutcome.AMBIGUOUS_STATS, claims=claims)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("metrics.speculative_decoding", TENSORRT_LLM),
        ("metrics.speculative_decoding", SGLANG),
        ("choices[].speculative_decoding", VLLM),
        ("choices[].speculative_decoding", SGLANG),
        ("meta_info.spec*", VLLM | TENSORRT_LLM),
        ("sglext.spec_tokens_details", VLLM | TENSORRT_LLM),
    ],
)
def test_the_keys_of_one_engine_at_the_place_of_another_are_unrecognised(
    place: str, value: dict[str, Any]
) -> None:
    assert judged({place: value}) == Judgement(RequestOutcome.UNRECOGNISED_STATS)


def test_names_that_engines_share_claim_nothing() -> None:
    shared = {"acceptance_histogram": [1, 0], "num_spec_steps": 1, "num_spec_tokens": 1}
    for place in places_of(ADAPTERS):
        assert judged({place: shared}).outcome is RequestOutcome.UNRECOGNISED_STATS


def test_several_choices_are_unattributable_before_any_adapter_is_asked() -> None:
    assert judge([Raising], response({}, choices=2)) == Judgement(RequestOutcome.UNATTRIBUTABLE)


def test_the_places_of_all_adapters_are_declared_once_and_sorted() -> None:
    assert places_of([*ADAPTERS, *ADAPTERS]) == (
        "choices[].meta_info.spec*",
        "choices[].speculate_metrics",
        "choices[].speculative_decoding",
        "choices[].speculative_decoding_stats",
        "meta_info.spec*",
        "metrics.speculative_decoding",
        "sglext.spec_tokens_details",
        "sglext.speculative_decoding_stats",
        "stats.*_draft_tokens_count",
        "timings.draft*",
        "usage.*_draft_tokens_count",
    )


def test_every_adapter_of_this_project_is_installed() -> None:
    assert load_adapters() == ADAPTERS


class Plugin:
    """A plugin that claims everything, and returns the given answer."""

    engine: ClassVar[str] = "plugin"
    places: ClassVar[tuple[str, ...]] = ("plugin",)
    answer: ClassVar[Any] = None

    @classmethod
    def can_adapt(cls, responses: list[ParsedResponse]) -> bool:
        return len(responses) == 1

    @classmethod
    def adapt(cls, responses: list[ParsedResponse]) -> AcceptanceRecord | Refusal | None:
        assert len(responses) == 1
        answer: AcceptanceRecord | Refusal | None = cls.answer
        return answer


class Raising(Plugin):
    """A plugin that raises whenever it is asked."""

    engine: ClassVar[str] = "raising"

    @classmethod
    def can_adapt(cls, responses: list[ParsedResponse]) -> bool:
        raise RecursionError(responses)


class RaisingLate(Plugin):
    """A plugin that claims a response and cannot read it."""

    engine: ClassVar[str] = "raising_late"

    @classmethod
    def adapt(cls, responses: list[ParsedResponse]) -> AcceptanceRecord | Refusal | None:
        raise KeyError(responses)


def answering(answer: Any) -> Judgement:
    """Return the judgement of a plugin's answer."""
    adapter = type("Answering", (Plugin,), {"answer": answer})
    return judge([adapter], response({"plugin": 1}))


def test_can_adapt_that_raises_is_reported_and_does_not_claim() -> None:
    failed = judge([Raising], response({"plugin": 1}))
    assert failed == Judgement(
        RequestOutcome.UNRECOGNISED_STATS, failures=(("raising", "RecursionError"),)
    )


def test_can_adapt_that_raises_does_not_keep_another_adapter_from_its_record() -> None:
    raising = type("Same", (Raising,), {"places": VLLMAdapter.places})
    judgement = judge([raising, *ADAPTERS], sample("vllm/chat_nonstream_summary.json"))
    assert judgement.outcome is RequestOutcome.PUBLISHED
    assert judgement.claims == ("vllm",)
    assert judgement.failures == (("raising", "RecursionError"),)


def test_an_adapter_without_anything_at_its_places_is_not_asked() -> None:
    assert judge([Raising], response({"other": 1})) == Judgement(RequestOutcome.UNRECOGNISED_STATS)


def test_adapt_that_raises_is_reported_as_malformed() -> None:
    assert judge([RaisingLate], response({"plugin": 1})) == Judgement(
        RequestOutcome.MALFORMED_STATS,
        MalformedReason.ADAPTER_FAILED,
        claims=("raising_late",),
        failures=(("raising_late", "KeyError"),),
    )


@pytest.mark.parametrize(
    "answer",
    [
        {"engine": "plugin", "num_spec_steps": 4},
        [AcceptanceRecord(engine="plugin")],
        "record",
        0,
        False,
        (),
        Refusal,
        Refusal(RequestOutcome.PUBLISHED),
        Refusal(RequestOutcome.INCOMPLETE),
        Refusal(RequestOutcome.MALFORMED_STATS),
        Refusal(RequestOutcome.MALFORMED_STATS, "own reason"),  # type: ignore[arg-type]
        Refusal(RequestOutcome.UNATTRIBUTABLE, MalformedReason.WRONG_TYPE),
        malformed(MalformedReason.WRONG_TYPE, "\udc80 would not encode"),
        malformed(MalformedReason.WRONG_TYPE, b"bytes"),  # type: ignore[arg-type]
        AcceptanceRecord(engine="another"),
        AcceptanceRecord(engine=7),  # type: ignore[arg-type]
        AcceptanceRecord(engine="plugin", draft_tokens_measured=object()),  # type: ignore[arg-type]
        AcceptanceRecord(engine="plugin", acceptance_histogram=[1]),  # type: ignore[arg-type]
        AcceptanceRecord(engine="plugin", per_step_accepted=3),  # type: ignore[arg-type]
    ],
)
def test_an_answer_that_is_none_of_the_protocol_is_a_failure_of_the_adapter(answer: Any) -> None:
    judgement = answering(answer)
    assert judgement.outcome is RequestOutcome.MALFORMED_STATS
    assert judgement.reason is MalformedReason.ADAPTER_FAILED
    assert judgement.record is None
    assert [engine for engine, _ in judgement.failures] == ["plugin"]


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (None, RequestOutcome.NO_STATS, NoStatsReason.ABSENT),
        (UNATTRIBUTABLE, RequestOutcome.UNATTRIBUTABLE, None),
        *(
            (malformed(reason), RequestOutcome.MALFORMED_STATS, reason)
            for reason in MalformedReason
        ),
        (AcceptanceRecord(engine="plugin", num_spec_steps=4), RequestOutcome.PUBLISHED, None),
        (
            AcceptanceRecord(engine="plugin", num_spec_steps=-4),
            RequestOutcome.MALFORMED_STATS,
            MalformedReason.NEGATIVE_COUNT,
        ),
        (
            AcceptanceRecord(engine="plugin", mean_acceptance_length=float("inf")),
            RequestOutcome.MALFORMED_STATS,
            MalformedReason.OUT_OF_RANGE,
        ),
    ],
)
def test_an_answer_of_the_protocol_is_taken_and_its_identities_are_checked(
    answer: Any, outcome: RequestOutcome, reason: object
) -> None:
    judgement = answering(answer)
    assert (judgement.outcome, judgement.reason) == (outcome, reason)
    assert judgement.claims == ("plugin",)
    assert judgement.failures == ()
    assert judgement.record == (answer if outcome is RequestOutcome.PUBLISHED else None)


def test_the_adapters_of_this_project_are_installed_in_the_order_of_their_names() -> None:
    assert load_adapters() == ADAPTERS


def test_every_adapter_follows_the_protocol() -> None:
    for adapter in ADAPTERS:
        assert isinstance(adapter, SpecDecodeAdapter)
        assert isinstance(adapter.places, tuple)


class WithoutPlaces:
    engine: ClassVar[str] = "plugin"

    can_adapt = Plugin.can_adapt
    adapt = Plugin.adapt


class WithOnePlace(Plugin):
    places: ClassVar[str] = "plugin"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("no_such_package.adapter:Adapter", "No module named 'no_such_package'"),
        ("json:NoSuchAdapter", "NoSuchAdapter"),
        ("json:loads", "lacks one of"),
        (f"{__name__}:WithoutPlaces", "lacks one of"),
        (f"{__name__}:WithOnePlace", "places is a string"),
    ],
)
def test_a_plugin_that_is_no_adapter_is_refused_by_its_name(
    value: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry_points(group: str) -> list[EntryPoint]:
        return [EntryPoint("broken", value, group)]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    with pytest.raises(AdapterError, match="'broken'") as caught:
        load_adapters()
    assert complaint in str(caught.value)


def test_a_plugin_whose_import_fails_in_any_way_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Exploding(EntryPoint):
        def load(self) -> Any:
            raise ZeroDivisionError("at import")

    def entry_points(group: str) -> list[EntryPoint]:
        return [Exploding("broken", "a:b", group)]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    with pytest.raises(AdapterError, match=r"'broken'.*at import") as caught:
        load_adapters()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_plugins_are_loaded_in_the_order_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(group: str) -> list[EntryPoint]:
        assert group == ENTRY_POINT_GROUP
        return [
            EntryPoint("b", f"{__name__}:Raising", group),
            EntryPoint("a", f"{__name__}:RaisingLate", group),
        ]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    assert [adapter.engine for adapter in load_adapters()] == ["raising_late", "raising"]
