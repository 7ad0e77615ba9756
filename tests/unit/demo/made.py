"""Traffic of the fleet, and what the service makes of it."""

from typing import Final

from consumer.demo.fleet import REQUESTS_PER_ROUND, ExpectedOutcome, Fleet, FleetMessage
from consumer.demo.totals import DemoTotals
from schemas import AcceptanceRecord, DeadLetter, PublishedRecord


def _messages() -> list[FleetMessage]:
    fleet = Fleet(seed=1, rate=40, start=1_767_225_600_000)
    messages = []
    for message in fleet:
        messages.append(message)
        if len(messages) >= 5 * REQUESTS_PER_ROUND:
            fleet.close()
    return messages


def record_of(
    expected: ExpectedOutcome, numbers: AcceptanceRecord | None = None
) -> PublishedRecord:
    """Return the record of a request, or one with other numbers."""
    numbers = numbers or expected.record
    assert numbers is not None
    return PublishedRecord(
        **{name: getattr(numbers, name) for name in AcceptanceRecord.__struct_fields__},
        fleet="demo",
        request_id=expected.request_id,
        response_id=expected.response_id,
        attempt=0,
        model=expected.model,
        endpoint=None,
        instance=None,
        labels={},
        prompt_tokens=expected.prompt_tokens,
        finish_reason="stop",
        streamed=expected.streamed,
        stream_complete=expected.stream_complete,
        incomplete_reason=None,
        started_at=None,
        completed_at=None,
        source_topic="serving-responses",
        source_partition=0,
        source_first_offset=0,
        source_last_offset=0,
        source_index=0,
        record_id="demo/serving-responses/0/0/0/0",
    )


def letter(reason: str) -> DeadLetter:
    return DeadLetter(
        kind="message",
        outcome="bad_payload",
        reason=reason,
        detail=None,
        fleet="demo",
        source_topic="serving-responses",
        source_partition=0,
        source_first_offset=0,
        source_last_offset=0,
        source_index=None,
        source_timestamp=None,
        request_id=None,
        response_id=None,
        model=None,
        record_id="demo/serving-responses/0/0/-/0",
        size=0,
        digest=None,
        truncated=False,
        key_base64=None,
        value_base64=None,
        headers=None,
        stats=None,
    )


MESSAGES: Final = _messages()
OUTCOMES: Final = [message.expected for message in MESSAGES if message.expected is not None]
RECORDS: Final = [record_of(expected) for expected in OUTCOMES if expected.record is not None]


def expected_totals() -> DemoTotals:
    """Return the totals of a demo in which everything arrives."""
    totals = DemoTotals()
    for message in MESSAGES:
        totals.add_message(message)
    for record in RECORDS:
        totals.add_record(record)
    for reason in totals.expected_dead_letters.elements():
        totals.add_dead_letter(letter(reason))
    return totals
