"""Compare records with what the simulated fleet expects, field by field."""

import math
from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import asdict

from consumer.demo.fleet import ExpectedOutcome
from schemas import PublishedRecord


def differences(
    outcomes: Iterable[ExpectedOutcome], records: Iterable[PublishedRecord]
) -> list[str]:
    """Return what is missing, published twice, unexpected, or different."""
    by_request: defaultdict[str | None, list[PublishedRecord]] = defaultdict(list)
    for record in records:
        by_request[record.request_id].append(record)
    found = []
    for outcome in outcomes:
        published = by_request.pop(outcome.request_id, [])
        name = f"{outcome.kind}, request {outcome.request_id}"
        wanted = 0 if outcome.record is None else 1
        if len(published) != wanted:
            found.append(f"{name}: {len(published)} records, expected {wanted}")
        elif published:
            found += [f"{name}: {one}" for one in _different_fields(outcome, published[0])]
    return found + [f"request {name}: not in the fleet" for name in by_request]


def _different_fields(outcome: ExpectedOutcome, record: PublishedRecord) -> list[str]:
    assert outcome.record is not None
    wanted = asdict(outcome.record) | {
        name: getattr(outcome, name)
        for name in ("response_id", "model", "prompt_tokens", "streamed", "stream_complete")
    }
    return [
        f"{name} is {getattr(record, name)!r}, expected {value!r}"
        for name, value in wanted.items()
        if not _is_same(value, getattr(record, name))
    ]


def _is_same(wanted: object, found: object) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(wanted, found, rel_tol=1e-9)
    return wanted == found
