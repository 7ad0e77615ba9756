"""A path mapping reads a fleet's home-made events."""

import json

import pytest

from consumer.core.adapters.registry import load_adapters
from consumer.core.message import CapturedMessage
from consumer.core.partition import Options, Pipeline
from consumer.settings.sources import SettingsError, load
from schemas import BadPayloadReason, RequestOutcome

_PATHS = {
    "request_id": "meta.rid",
    "sequence": "meta.n",
    "timestamp": "at",
    "body": "payload.chunk",
    "final": "last",
}
_STATS = {
    "mean_acceptance_length": 2.5,
    "draft_acceptance_rate": 0.5,
    "acceptance_histogram": [8, 0, 6, 6],
    "num_spec_steps": 20,
    "num_accepted_draft_tokens": 30,
    "num_draft_tokens": 60,
    "num_spec_tokens": 3,
}


def _event(number: int, chunk: dict[str, object] | str, *, last: bool = False) -> dict[str, object]:
    return {
        "meta": {"rid": "r-1", "n": number},
        "at": 1767225600000 + number,
        "payload": {"chunk": chunk},
        "last": last,
    }


_STREAM = [
    _event(0, {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0}]}),
    _event(
        1,
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "choices": [],
            "usage": {"prompt_tokens": 20, "completion_tokens": 51},
            "metrics": {"speculative_decoding": _STATS},
        },
    ),
    _event(2, "[DONE]", last=True),
]


def _run(*events: object) -> tuple[list[object], list[object]]:
    pipeline = Pipeline(Options(paths=_PATHS), load_adapters())
    partition = pipeline.partition("t", 0, 0)
    results = [
        partition.feed(CapturedMessage(at_offset=at, the_value=json.dumps(event).encode()))
        for at, event in enumerate(events)
    ]
    return [result.reason for result in results], [result.outcome for result in partition.drain()]


def test_a_stream_of_home_made_events_gives_a_record() -> None:
    assert _run(*_STREAM) == ([None, None, None], [RequestOutcome.PUBLISHED])


def test_events_in_another_order_are_ordered_by_the_mapped_sequence() -> None:
    assert _run(_STREAM[1], _STREAM[0], _STREAM[2])[1] == [RequestOutcome.PUBLISHED]


def test_a_number_is_taken_as_request_id() -> None:
    events = [{**event, "meta": {**event["meta"], "rid": 7}} for event in _STREAM]  # type: ignore[dict-item]

    assert _run(*events)[1] == [RequestOutcome.PUBLISHED]


def test_a_member_of_a_wrong_type_is_refused_with_its_reason() -> None:
    wrong = {**_STREAM[0], "meta": {"rid": "r-1", "n": "first"}}

    assert _run(wrong)[0] == [BadPayloadReason.INVALID_EVENT]


def test_a_message_without_the_mapped_members_is_recognised_as_without_a_mapping() -> None:
    native = {"request_id": "r-2", "body": _STREAM[1]["payload"]["chunk"], "final": True}  # type: ignore[index]

    assert _run(native)[1] == [RequestOutcome.PUBLISHED]


def test_a_mapping_of_an_unknown_member_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsError, match="member_paths"):
        load({}, {"ACCEPTANCE_MEMBER_PATHS": "rid=meta.rid"}, None, require=())
