"""Answers of other APIs: skipped under their name in every envelope, and never dead letters."""

from typing import Any

import pytest

from schemas import SkipReason
from tests.unit.core.made import (
    cloudevent_headers,
    encode,
    message,
    native,
    outcomes_of,
    pipeline,
    short,
    short_message,
    sse,
)

# As the APIs' references and public reports show them.
ANSWERS: dict[SkipReason, list[Any]] = {
    SkipReason.TRITON_GENERATE: [{"model_name": "e", "model_version": "1", "text_output": "Hi"}],
    SkipReason.TGI_GENERATE: [
        {"generated_text": "Hi", "details": {"finish_reason": "length", "generated_tokens": 20}},
        [{"generated_text": "Hi"}],
    ],
    SkipReason.OLLAMA: [
        {"model": "m", "created_at": "2026-11-30T12:00:00Z", "response": "Hi", "done": True},
        {
            "model": "m",
            "created_at": "2026-11-30T12:00:00Z",
            "message": {"role": "assistant", "content": "Hi"},
            "done": False,
        },
    ],
    SkipReason.TOKENIZE: [
        {"count": 5, "max_model_len": 4096, "tokens": [1, 2], "token_strs": None},
        {"tokens": [1, 2]},
    ],
    SkipReason.DETOKENIZE: [{"prompt": "Hi"}],
    SkipReason.TRANSCRIPTION: [{"text": "Hi", "usage": {"type": "duration", "seconds": 3}}],
    SkipReason.EMBEDDINGS: [
        {
            "object": "list",
            "model": "m",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.1]}],
            "usage": {"prompt_tokens": 5, "total_tokens": 5},
        },
        {"model": "m", "embeddings": [[0.1]]},
        [[0.1, 0.2]],
    ],
    SkipReason.RERANK: [
        {"id": "r", "results": [{"index": 0, "relevance_score": 0.9}]},
        [{"index": 0, "score": 0.9}],
    ],
    SkipReason.SCORE: [
        {"id": "s", "object": "list", "data": [{"index": 0, "object": "score", "score": 0.9}]}
    ],
    SkipReason.CLASSIFY: [
        {"id": "c", "object": "list", "data": [{"index": 0, "label": "A", "probs": [0.9]}]}
    ],
    SkipReason.MODERATION: [{"id": "m", "model": "m", "results": [{"flagged": False}]}],
    SkipReason.MODELS: [
        {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm"}]},
        {"models": [{"name": "m"}]},
    ],
    SkipReason.IMAGES: [{"created": 1, "data": [{"b64_json": "aGk="}]}],
    SkipReason.INFERENCE: [
        {"model_name": "m", "outputs": [{"name": "y", "shape": [1], "datatype": "FP32"}]},
        {"predictions": [1, 2]},
    ],
    SkipReason.SERVER_STATUS: [{"status": "ok"}, {"version": "0.33.0"}, {"name": "m", "ready": 1}],
    SkipReason.UNRELATED_BODY: [{"object": "list", "data": []}, {"outputs": [[0.5]]}],
}
CASES = [(api, answer) for api, answers in ANSWERS.items() for answer in answers]


@pytest.mark.parametrize(("api", "answer"), CASES)
def test_a_bare_answer_is_skipped_under_the_name_of_its_api(api: SkipReason, answer: Any) -> None:
    partition = pipeline().partition("t", 0, 0)
    assert short_message(partition.feed(message(encode(answer)))) == f"skipped({api})"


@pytest.mark.parametrize(("api", "answer"), CASES)
def test_an_answer_in_a_cloudevent_is_skipped_too(api: SkipReason, answer: Any) -> None:
    partition = pipeline().partition("t", 0, 0)
    sent = message(encode(answer), headers=cloudevent_headers())
    assert short_message(partition.feed(sent)) == f"skipped({api})"


@pytest.mark.parametrize("members", [{}, {"sequence": 0, "final": True}])
@pytest.mark.parametrize(("api", "answer"), CASES)
def test_an_answer_in_a_native_event_is_skipped_too(
    api: SkipReason, answer: Any, members: dict[str, Any]
) -> None:
    partition = pipeline().partition("t", 0, 0)
    sent = message(native(body=answer, **members))
    assert short_message(partition.feed(sent)) == f"skipped({api})"


def test_a_stream_of_another_api_is_skipped_whole() -> None:
    parts = [{"model_name": "e", "text_output": text} for text in ("Some", "thing")]
    partition = pipeline().partition("t", 0, 0)
    assert short_message(partition.feed(message(sse(*parts)))) == "skipped(triton_generate)"


def test_lines_of_another_api_are_skipped_whole() -> None:
    part = {"model": "m", "created_at": "2026-11-30T12:00:00Z", "response": "Hi", "done": False}
    partition = pipeline().partition("t", 0, 0)
    lines = encode(part) + b"\n" + encode(part | {"done": True}) + b"\n"
    assert short_message(partition.feed(message(lines))) == "skipped(ollama)"


@pytest.mark.parametrize("detail", ["Not Found", [{"loc": ["body"], "msg": "field required"}]])
def test_the_error_of_a_framework_is_a_failed_response(detail: Any) -> None:
    for value in (encode({"detail": detail}), native(body={"detail": detail})):
        assert [short(result) for result in outcomes_of([value])] == ["failed_response"]


@pytest.mark.parametrize(
    "answer",
    [
        {"detail": "x", "more": 1},
        {"text": "Hi", "score": 1},
        {"data": "text"},
        {"results": {"flagged": True}},
        {"status": "ok", "answer": "Hi"},
        {"message": "Hi"},
        {},
    ],
)
def test_what_fits_no_api_remains_a_bad_payload(answer: Any) -> None:
    partition = pipeline().partition("t", 0, 0)
    outcome = short_message(partition.feed(message(encode(answer), headers=cloudevent_headers())))
    assert outcome == "bad_payload(body_not_a_response)"
