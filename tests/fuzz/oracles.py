"""What must hold for any value of a message: for the fuzzer, for its findings and for all samples.

The functions raise if it does not. They need no fuzzer.
"""

import contextlib
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from consumer.core.bodies.body_reader import BOM_AND_SPACE
from consumer.core.dead_letters import letter_of_message, letter_of_request, readable_headers
from consumer.core.envelopes.formats import FORMATS
from consumer.core.envelopes.opener import AUTO, UNKNOWN
from consumer.core.envelopes.value_opener import CLOUDEVENTS, NATIVE, OTLP
from consumer.core.message import CapturedMessage
from consumer.core.output_messages import output_of_letter, output_of_record
from consumer.core.partition import Partition, Pipeline
from consumer.core.response_event import MAX_ID_CHARACTERS, BadEvent, Event, Opened
from consumer.core.times import FIRST_EVENT_MS, LAST_EVENT_MS
from schemas import BadPayloadReason, MessageOutcome, SkipReason
from schemas.record import MAX_LABELS
from tests.unit.core.made import TOPIC, message, pipeline

MAX_BYTES: Final = 1 << 15
_LIMIT: Final = 1 << 20
# Far above what an honest value of this size takes, even while the fuzzer counts branches.
_MAX_CPU_S: Final = 2.0
_CAPS: Final = frozenset({BadPayloadReason.WRAPPED_TOO_DEEP, BadPayloadReason.TOO_DEEP})


def _open(core: Pipeline, value: bytes) -> tuple[str, list[Opened]]:
    name, opened = core.opener.open(message(value))
    return name, opened if isinstance(opened, list) else [opened]


def _comparable(opened: list[Opened]) -> bytes:
    """Return events without their own bytes, which differ with what is around them."""
    for event in opened:
        if isinstance(event, Event):
            event.raw = b""
    return msgspec.json.encode(opened)


def _check_event(event: Event) -> None:
    assert event.request_id is None or 0 < len(event.request_id) <= MAX_ID_CHARACTERS
    assert event.time is None or FIRST_EVENT_MS <= event.time <= LAST_EVENT_MS
    for number in (event.sequence, event.attempt):
        assert number is None or 0 <= number < 2**63
    labels = event.context.labels if event.context else None
    assert labels is None or len(labels) <= MAX_LABELS


def check_value(core: Pipeline, value: bytes) -> None:
    """Check that a value is opened in bounded time, always alike, and to what can be written."""
    begin = time.process_time()
    name, opened = _open(core, value)
    assert time.process_time() - begin < _MAX_CPU_S, "it takes too long"
    assert opened
    for one in opened:
        if isinstance(one, Event):
            _check_event(one)
        elif isinstance(one, BadEvent) and one.detail is not None:
            one.detail.encode()
    known = _comparable(opened)
    again, opened_again = _open(core, value)
    assert (again, _comparable(opened_again)) == (name, known), "it is opened in another way"
    _check_outcomes(core, value)


def _outputs(core: Pipeline, messages: list[CapturedMessage], *, together: bool) -> Any:
    """Return everything that the service would write and count of a log of these messages."""
    partition = core.partition(TOPIC, 0, 0)
    if together:
        fed = partition.feed_all(messages)
        results = [result for _, result in fed.not_accepted]
    else:
        all_results = [partition.feed(one) for one in messages]
        results = [one for one in all_results if one.outcome is not MessageOutcome.ACCEPTED]
    letters = [
        output_of_letter(_letter(partition, one, result), _LIMIT).value
        for one in messages[:1]
        for result in results
        if result.outcome is MessageOutcome.BAD_PAYLOAD
    ]
    partition.close_all()
    outputs = []
    for result in partition.drain():
        assert not result.failures, "an adapter raised"
        if result.record is not None:
            outputs.append(output_of_record(result.record, result.response, _LIMIT).value)
        else:
            outputs.append(output_of_letter(letter_of_request(result, partition.origin), 0).value)
    return letters, outputs, partition.position


def _letter(partition: Partition, one: CapturedMessage, result: Any) -> Any:
    reason = str(result.reason)
    headers = readable_headers(one, reason)
    return letter_of_message(one, result.outcome, reason, result.detail, partition.origin, headers)


def _check_outcomes(core: Pipeline, value: bytes) -> None:
    log = [message(value, offset, offset) for offset in range(2)]
    alone = _outputs(core, log, together=False)
    assert alone == _outputs(core, log, together=True), "the short way differs"


def check_wrapped(core: Pipeline, value: bytes) -> None:
    """Check that what is around a value does not change its events: compression, string, wrapper.

    JSON and streams are looked for on each level; other values only on the first.
    """
    name, opened = _open(core, value)
    if name == UNKNOWN or opened == [SkipReason.EMPTY_BATCH]:  # A wrapper of nothing is nothing.
        return
    known = _comparable(opened)
    packed = zlib.compressobj(wbits=31)
    around = [packed.compress(value) + packed.flush()]
    begin = value.lstrip(BOM_AND_SPACE)
    if begin.startswith((b"{", b"[", b'"', b"data:")):
        with contextlib.suppress(UnicodeDecodeError):
            text = msgspec.json.encode(value.decode())
            around += [text, b'{"message":%b}' % text, b'{"payload":%b,"schema":null}' % text]
    for outer in around:
        outer_name, outer_opened = _open(core, outer)
        # An event of a type that is not listed is opened as a wrapper, unless it lies too deep.
        too_deep = outer_opened == [SkipReason.UNRELATED_EVENT] or any(
            isinstance(one, BadEvent) and one.reason in _CAPS for one in outer_opened
        )
        if too_deep:
            continue
        assert (outer_name, _comparable(outer_opened)) == (name, known), outer[:60]


def check_opening(value: bytes) -> None:
    """Check all that must hold where any envelope may be recognised."""
    check_value(_CORES[AUTO], value)
    check_wrapped(_CORES[AUTO], value)


def _checker(core: Pipeline) -> Callable[[bytes], None]:
    return lambda value: check_value(core, value)


_NAMES: Final = (NATIVE, CLOUDEVENTS, OTLP, *(form.name for form in FORMATS))
_CORES: Final = {name: pipeline(envelope=name) for name in (AUTO, *_NAMES)}
TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = {
    AUTO: check_opening,
    **{name: _checker(_CORES[name]) for name in _NAMES},
}
"""What the fuzzer may call with any value, by the envelope that may be recognised."""


def recognised(value: bytes) -> str:
    """Return the name of the envelope of a value."""
    return _open(_CORES[AUTO], value)[0]
