"""Traffic of the fleet, and the records that the service makes of it."""

from typing import Final

from consumer.demo.fleet import REQUESTS_PER_ROUND, ExpectedOutcome, Fleet, FleetMessage
from consumer.demo.totals import DemoTotals
from schemas import AcceptanceRecord, PublishedRecord
from tests.unit.commands.report.made import record


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
    return record(
        **{name: getattr(numbers, name) for name in AcceptanceRecord.__struct_fields__},
        request_id=expected.request_id,
        response_id=expected.response_id,
        model=expected.model,
        prompt_tokens=expected.prompt_tokens,
        streamed=expected.streamed,
        stream_complete=expected.stream_complete,
    )


MESSAGES: Final = _messages()
OUTCOMES: Final = [message.expected for message in MESSAGES if message.expected is not None]
RECORDS: Final = [record_of(expected) for expected in OUTCOMES if expected.record is not None]


def expected_totals() -> DemoTotals:
    """Return the totals of a demo in which everything arrives."""
    totals = DemoTotals()
    for message in MESSAGES:
        totals.add_message(message)
    for published in RECORDS:
        totals.add_record(published)
    totals.dead_letters += totals.expected_dead_letters
    return totals
