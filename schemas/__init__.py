"""The contracts of acceptance-consumer: events, records, dead letters, outcomes and reasons.

The package imports nothing but msgspec, so that a subscriber can read records without a Kafka
client.
"""

from schemas.dead_letter import DeadLetter
from schemas.event import ResponseEvent
from schemas.reasons import (
    BadPayloadReason,
    IncompleteReason,
    MalformedReason,
    MessageOutcome,
    NoStatsReason,
    OddMember,
    RequestOutcome,
    SkipReason,
)
from schemas.record import (
    SCHEMA_VERSION,
    AcceptanceRecord,
    PublishedRecord,
    differing_statements,
    violated_identity,
    with_derived,
)
from schemas.response import ParsedResponse, Usage

__all__ = [
    "SCHEMA_VERSION",
    "AcceptanceRecord",
    "BadPayloadReason",
    "DeadLetter",
    "IncompleteReason",
    "MalformedReason",
    "MessageOutcome",
    "NoStatsReason",
    "OddMember",
    "ParsedResponse",
    "PublishedRecord",
    "RequestOutcome",
    "ResponseEvent",
    "SkipReason",
    "Usage",
    "differing_statements",
    "violated_identity",
    "with_derived",
]
