"""The demo's counts, and the comparison that tests make with the same fleet."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from consumer.demo.fleet import FleetMessage, MessageKind
from consumer.demo.totals import DemoTotals
from schemas import MalformedReason, PublishedRecord, RequestOutcome
from tests.support.fleet_records import differences
from tests.unit.demo.made import MESSAGES, OUTCOMES, RECORDS, expected_totals, record_of

LATE = sum(expected.after_timeout for expected in OUTCOMES if expected.record is not None)
FAILED = next(e for e in OUTCOMES if e.outcome is RequestOutcome.FAILED_RESPONSE)
STEPS = RECORDS[0].num_spec_steps or 0
MEAN = RECORDS[0].mean_acceptance_length or 0.0


def counted(
    *inputs: FleetMessage | PublishedRecord,
) -> tuple[int, int, int, int]:
    """Return how many records arrived, are missing, not due and unexpected."""
    totals = DemoTotals()
    for one in inputs:
        if isinstance(one, PublishedRecord):
            totals.add_record(one)
        else:
            totals.add_message(one)
    return totals.arrived, totals.missing, totals.not_due, totals.unexpected


def test_records_may_arrive_before_or_after_the_fleet_has_finished() -> None:
    assert counted(*MESSAGES, *RECORDS) == (len(RECORDS), 0, 0, 0)
    assert counted(*RECORDS, *MESSAGES) == (len(RECORDS), 0, 0, 0)
    assert counted(*RECORDS) == (0, 0, 0, len(RECORDS))


def test_records_after_a_timeout_are_not_missing() -> None:
    assert LATE > 0
    assert counted(*MESSAGES) == (0, len(RECORDS) - LATE, LATE, 0)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(
    "extra", [RECORDS[0], replace(RECORDS[0], request_id=FAILED.request_id)], ids=["twice", "none"]
)
def test_a_record_that_no_request_expects_is_counted(
    extra: PublishedRecord, *, early: bool
) -> None:
    records = [*RECORDS, extra]
    found = counted(*records, *MESSAGES) if early else counted(*MESSAGES, *records)
    assert found == (len(RECORDS), 0, 0, 1)


def test_bad_payloads_and_contradictions_are_expected_as_dead_letters() -> None:
    totals = expected_totals()
    bad = sum(message.kind is MessageKind.BAD for message in MESSAGES)
    contradictions = totals.expected_dead_letters[MalformedReason.HISTOGRAM_STEPS]
    assert contradictions > 0
    assert totals.expected_dead_letters.total() == bad + contradictions
    assert totals.is_complete
    totals.dead_letters.popitem()
    assert not totals.is_complete


def test_totals_are_the_sums_of_all_models() -> None:
    totals = expected_totals()
    steps = [sum(one.accepted_per_step.counts) for one in totals.acceptance.values()]
    assert totals.sums.requests == len(RECORDS)
    assert totals.sums.verify_steps == sum(steps)
    assert len(totals.acceptance) > len(totals.samples) == 4


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda records: records, None),
        (lambda records: records[::-1], None),
        (lambda records: [with_steps(records[0], STEPS + 1), *records[1:]], "num_spec_steps is"),
        (lambda records: [with_mean(records[0], MEAN * (1 + 1e-15)), *records[1:]], None),
        (lambda records: [*records, records[0]], "2 records, expected 1"),
        (lambda records: records[1:], "0 records, expected 1"),
        (lambda records: [*records, record_of(FAILED, RECORDS[0])], "1 records, expected 0"),
        (lambda records: [*records, replace(records[0], request_id="x")], "not in the fleet"),
    ],
)
def test_the_comparison_finds_every_difference(
    change: Callable[[list[PublishedRecord]], list[PublishedRecord]], found: str | None
) -> None:
    differing = differences(OUTCOMES, change(RECORDS))
    assert len(differing) == (found is not None)
    assert all(found in one for one in differing if found)


def with_steps(record: PublishedRecord, steps: int) -> PublishedRecord:
    return replace(record, num_spec_steps=steps)


def with_mean(record: PublishedRecord, mean: float) -> PublishedRecord:
    return replace(record, mean_acceptance_length=mean)
