"""The messages that a fleet logs, and the truth about them: what must become of each request."""

from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from schemas import (
    AcceptanceRecord,
    BadPayloadReason,
    IncompleteReason,
    MalformedReason,
    NoStatsReason,
    RequestOutcome,
    SkipReason,
)

INPUT_TOPIC: Final = "serving-responses"
CANARY: Final = "canary-content-4f1d"
"""In every prompt and every answer; nothing that the service says may contain it."""

CREDENTIAL_CANARY: Final = "canary-credential-9b27"
"""In a credential header of every message; nothing that the service writes may contain it."""

Header = tuple[str, bytes]
OutcomeReason = NoStatsReason | MalformedReason | IncompleteReason


class Label(StrEnum):
    """What a message is."""

    CHUNK = "chunk event"
    SEGMENT = "raw segment"
    RESPONSE = "response event"
    KSERVE_RESPONSE = "kserve response"
    KSERVE_REQUEST = "kserve request"
    STRUCTURED = "structured cloudevent"
    BARE = "bare body"
    REPEAT = "repeat"
    UNRELATED = "unrelated"
    BAD = "bad payload"


class Expected(Struct, frozen=True, kw_only=True):
    """What must become of one request.

    Attributes:
        request_id: as the envelope says, or the body where nothing is around it.
        kind: name of the kind of request.
        reason: why, where the outcome has reasons. Of a stream that stops, the reason in a log
            that goes on; where the log ends there, the service may say `partition_silent`.
        record: the numbers, if the outcome is `published`.
        after_timeout: the record comes only when the service has waited for what never came.

    """

    request_id: str
    response_id: str
    kind: str
    engine: str
    model: str
    outcome: RequestOutcome
    reason: OutcomeReason | None
    record: AcceptanceRecord | None
    prompt_tokens: int | None
    streamed: bool
    stream_complete: bool
    after_timeout: bool


class FleetMessage(NamedTuple):
    """One Kafka message, and what it settles.

    Attributes:
        timestamp: when it is due, milliseconds since 1970; also its Kafka timestamp.
        reason: why the message itself is skipped or a bad payload; None if it is accepted.
        settles: the request of which this is the last message that counts.

    """

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    label: Label
    timestamp: int
    reason: BadPayloadReason | SkipReason | None = None
    settles: Expected | None = None
    topic: str = INPUT_TOPIC
