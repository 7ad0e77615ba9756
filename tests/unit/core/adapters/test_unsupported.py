"""Engines that are known, and that no adapter reads: counted by name, not as switched off."""

import pytest

from consumer.core.adapters.registry import places_of
from consumer.core.adapters.unsupported import known_places, unsupported_engine
from consumer.core.outcomes import RequestResult
from schemas import NoStatsReason, RequestOutcome
from tests.paths import SAMPLES
from tests.unit.core.made import ADAPTERS, Json, chunk, encode, native, outcomes_of, whole


def result_of(**members: object) -> RequestResult:
    """Return the outcome of a whole response without vLLM's metrics and with other members."""
    body = {name: value for name, value in whole().items() if name != "metrics"} | members
    [result] = outcomes_of([encode(body)])
    return result


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("fireworks/chat_nonstream_perf_metrics.json", "fireworks"),
        ("ollama/chat_nonstream_openai_endpoint.json", "ollama"),
        ("sambanova/chat_nonstream_usage_acceptance_rate.json", "sambanova"),
        ("tgi/chat_stream.sse", "tgi"),
    ],
)
def test_a_response_of_a_known_engine_names_it(name: str, engine: str) -> None:
    [result] = outcomes_of([(SAMPLES / "engines" / name).read_bytes()])
    assert result.outcome is RequestOutcome.NO_STATS
    assert result.reason is NoStatsReason.UNSUPPORTED_ENGINE
    assert (result.claims, result.detail) == ((engine,), engine)


@pytest.mark.parametrize(
    "fingerprint",
    ["fp_44709d6fcb", "b10917-x", "vllm-0.33.0-0a1b", "3.2.3", "3.2.3-sha-", "fp_ollama2", None],
)
def test_another_fingerprint_names_no_engine(fingerprint: str | None) -> None:
    result = result_of(system_fingerprint=fingerprint)
    assert result.reason is NoStatsReason.ABSENT
    assert result.claims == ()


def test_the_numbers_of_an_adapter_count_whatever_else_the_response_has() -> None:
    usage = {"prompt_tokens": 11, "completion_tokens": 24, "acceptance_rate": 2.5}
    [result] = outcomes_of([encode(whole() | {"usage": usage, "system_fingerprint": "fp_ollama"})])
    assert result.outcome is RequestOutcome.PUBLISHED
    assert result.claims == ("vllm",)


def test_numbers_in_a_new_shape_remain_unrecognised_beside_those_of_a_known_engine() -> None:
    usage = {"completion_tokens": 24, "acceptance_rate": 2.5}
    result = result_of(metrics={"speculative_decoding": {"new": 1}}, usage=usage)
    assert result.outcome is RequestOutcome.UNRECOGNISED_STATS


def test_a_known_engine_whose_response_did_not_end_is_incomplete() -> None:
    first: Json = chunk() | {"system_fingerprint": "fp_ollama"}
    [result] = outcomes_of([native(body=first)])
    assert result.outcome is RequestOutcome.INCOMPLETE


def test_the_fingerprint_is_that_of_the_first_chunk_in_whatever_order_they_come() -> None:
    first: Json = chunk() | {"system_fingerprint": "fp_ollama"}
    last: Json = chunk(finish="stop") | {"usage": {"completion_tokens": 2}}
    events = [
        native(sequence=0, body=first),
        native(sequence=1, body=last, final=True),
    ]
    for log in (events, events[::-1]):
        [result] = outcomes_of(log)
        assert result.claims == ("ollama",)


def test_places_of_engines_without_an_adapter_belong_to_no_adapter() -> None:
    others = set(known_places(ADAPTERS)) - set(places_of(ADAPTERS))
    assert others == {"perf_metrics.speculation*", "usage.acceptance_rate"}
    assert {unsupported_engine([place], None) for place in others} == {"fireworks", "sambanova"}
