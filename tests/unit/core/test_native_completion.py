"""llama.cpp's native completion: no `choices`, no `[DONE]`, and an end of its own."""

import pytest

from tests.unit.core.made import Json, native, outcomes_of, sse

TIMINGS: Json = {"predicted_n": 51, "draft_n": 60, "draft_n_accepted": 30}


def part(index: int = 0, *, stop: bool = False) -> Json:
    """Return a chunk of a stream, or its last one."""
    body: Json = {"index": index, "content": "x", "stop": stop, "tokens_predicted": 51}
    return body | {"tokens_evaluated": 20, "stop_type": "eos", "timings": TIMINGS} if stop else body


def test_a_stream_ends_with_the_chunk_that_says_stop() -> None:
    [result] = outcomes_of([sse(part(), part(stop=True))])
    assert result.record is not None
    assert (result.record.engine, result.record.stream_complete) == ("llamacpp", True)
    assert (result.record.prompt_tokens, result.record.completion_tokens) == (20, 51)
    assert result.record.finish_reason == "eos"


@pytest.mark.parametrize("numbered", [True, False])
def test_chunk_events_end_with_the_chunk_that_says_stop(numbered: bool) -> None:
    parts = [part(), part(), part(stop=True)]
    events = [
        native(body=body, **({"sequence": at} if numbered else {})) for at, body in enumerate(parts)
    ]
    [result] = outcomes_of(events)
    assert result.record is not None
    assert (result.record.stream_complete, result.record.num_draft_tokens) == (True, 60)


def test_several_prompts_one_after_the_other_belong_to_none_of_them() -> None:
    stream = sse(part(0), part(0, stop=True), part(1), part(1, stop=True))
    [result] = outcomes_of([stream])
    assert result.outcome == "unattributable"


@pytest.mark.parametrize("stop", [["###"], "###", None, 1])
def test_a_member_stop_of_another_kind_does_not_make_a_completion(stop: object) -> None:
    assert outcomes_of([native(body={"stop": stop, "content": "x"})]) == []
