"""The messages that the fleet logs, and the outcome that each request must have."""

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

CANARY: Final = "canary-content-4f1d"
"""A word in every prompt and every answer; nothing that the service logs may contain it."""

CREDENTIAL_CANARY: Final = "canary-credential-9b27"
"""A word in a credential header of every message; the service may write it nowhere."""

OutcomeReason = NoStatsReason | MalformedReason | IncompleteReason


class MessageKind(StrEnum):
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


class ExpectedOutcome(Struct, frozen=True, kw_only=True):
    """The outcome that one request must have.

    Attributes:
        request_id: the id in the envelope, or in the body if the message has no envelope.
        kind: name of the kind of request.
        reason: the reason, for an outcome that has reasons. A stream that stops has the reason of
            a log that goes on; if the log ends there, the service may report `partition_silent`.
        record: the numbers, if the outcome is `published`.
        after_timeout: whether the service publishes the record only after its idle timeout.

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
    """One Kafka message.

    Attributes:
        timestamp: when to send it, milliseconds since 1970; also its Kafka timestamp.
        reason: why the service skips or rejects the message; None if it accepts the message.
        expected: the outcome of the request that this message completes; None for all others.

    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    kind: MessageKind
    timestamp: int
    reason: BadPayloadReason | SkipReason | None = None
    expected: ExpectedOutcome | None = None
