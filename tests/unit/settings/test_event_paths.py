"""The setting `paths`: what can never match is refused before the service starts."""

import pytest

from consumer.settings.event_paths import path_problems
from consumer.settings.sources import SettingsError, load


def problems(paths: dict[str, str], envelope: str = "auto") -> list[str]:
    return list(path_problems(paths, envelope))


@pytest.mark.parametrize(
    "paths",
    [
        {},
        {"body": "answer"},
        {"request_id": "id", "body": "answer"},
        {"request_id": "id", "final": "last"},
        {"request_id": "answer.id", "body": "answer"},  # The id is a member of the response.
        {"each": "events", "body": "answer", "base64_if": "encoding"},
        {"request_id": "id", "body": "text", "body_base64": "bytes"},
        {"request_id": "trace.id", "body": "http.response.body.content"},
    ],
)
def test_a_mapping_that_can_match_is_accepted(paths: dict[str, str]) -> None:
    assert problems(paths) == []


@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        ({"request_id": "id"}, "no member that holds a response"),
        ({"model": "m"}, "no member that holds a response"),
        ({"final": "last"}, "no member that names a request"),
        ({"body_base64": "bytes", "base64_if": "encoding"}, "has base64_if, but no body"),
        ({"request_id": "a", "body": "a"}, "the path a for both request_id and body"),
        ({"body": "a", "body_base64": "a"}, "the path a for both body_base64 and body"),
        ({"request_id": "a", "body": "a.b"}, "leads body through a, which is text"),
    ],
)
def test_a_mapping_that_can_never_match_is_refused(paths: dict[str, str], problem: str) -> None:
    [said] = problems(paths)
    assert problem in said


@pytest.mark.parametrize("envelope", ["cloudevents", "body", "litellm"])
def test_a_mapping_beside_another_pinned_envelope_is_refused(envelope: str) -> None:
    assert f"never used with the envelope {envelope}" in problems({"body": "a"}, envelope)[0]


def test_the_problem_names_the_setting_and_its_source() -> None:
    with pytest.raises(SettingsError, match=r"paths \(environment ACCEPTANCE_PATHS\)"):
        load({}, {"ACCEPTANCE_PATHS": "request_id=id"}, None, require=())
