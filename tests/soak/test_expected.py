"""The comparison finds every difference."""

import msgspec
import pytest

from consumer.core.output_messages import OutputMessage
from tests.soak.expected import ExpectedOutputs, Findings, compare
from tests.soak.subscriber import Delivered

_TOPICS = {"record": "records", "dead_letter": "dead"}
_HEADERS: list[tuple[str, bytes | str | None]] = [("content-type", b"application/json")]
_STAMP = 1_767_225_600_000


def _value(offset: int, **members: object) -> bytes:
    content = {
        "record_id": f"test/input/0/{offset}/0/{_STAMP}",
        "request_id": f"r{offset}",
        "source_partition": 0,
        "source_first_offset": offset,
        "source_last_offset": offset,
        **members,
    }
    return msgspec.json.encode(content)


def _output(offset: int, timestamp: int = _STAMP) -> OutputMessage:
    source = ("input", 0, offset)
    return OutputMessage(
        "record", b"key", _value(offset), _HEADERS, timestamp, source, "r", "request", "published"
    )


def _delivered(offset: int, **changes: object) -> Delivered:
    one = Delivered("records", b"key", _value(offset), _HEADERS, _STAMP, 0.0)
    return msgspec.structs.replace(one, **changes)


def _compared(*delivered: Delivered) -> dict[str, Findings]:
    outputs = {f"test/input/0/{offset}/0/{_STAMP}": _output(offset) for offset in (1, 2)}
    return compare(ExpectedOutputs(outputs=outputs, repeats={(0, 7)}), _TOPICS, list(delivered))


def _counts(findings: Findings) -> dict[str, int]:
    return {name: len(found) for name, found in findings.wrong().items() if found}


def test_equal_outputs_have_no_findings() -> None:
    found = _compared(_delivered(2), _delivered(1))
    assert [_counts(one) for one in found.values()] == [{}, {}]


@pytest.mark.parametrize(
    ("delivered", "counts"),
    [
        ([_delivered(1)], {"missing": 1}),
        ([_delivered(1), _delivered(2), _delivered(2)], {"twice": 1}),
        ([_delivered(1), _delivered(2), _delivered(3)], {"unexpected": 1}),
        ([_delivered(1), _delivered(2, value=_value(2, request_id="r1"))], {"different": 1}),
        ([_delivered(1), _delivered(2, key=None)], {"different": 1}),
        ([_delivered(1), _delivered(2, headers=[])], {"different": 1}),
        ([_delivered(1), _delivered(2, timestamp=1)], {"different": 1}),
        ([_delivered(1), _delivered(2, topic="dead")], {"different": 1}),
        ([_delivered(1), _delivered(2), _delivered(2, key=None)], {"twice": 1, "different": 1}),
    ],
)
def test_every_difference_is_found(delivered: list[Delivered], counts: dict[str, int]) -> None:
    found = _compared(*delivered)
    assert {name: n for one in found.values() for name, n in _counts(one).items()} == counts
    described = [text for one in found.values() for text in one.described()]
    assert {text.partition(":")[0] for text in described} == set(counts)


def test_a_repeat_of_a_whole_response_may_be_delivered() -> None:
    found = _compared(_delivered(1), _delivered(2), _delivered(7))["record"]
    assert (_counts(found), found.possible_repeats) == ({}, 1)
