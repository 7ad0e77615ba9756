"""The closed list of outcomes and reasons, used alike by logs, totals, dead letters and documents.

Every message has exactly one `MessageOutcome`, every request exactly one `RequestOutcome`. The
sentence beside each member is the one that the documents print.
"""

from enum import StrEnum
from typing import Self


class _Explained(StrEnum):
    """A string enumeration whose members carry the sentence that explains them."""

    explanation: str

    def __new__(cls, value: str, explanation: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.explanation = explanation
        return member


class MessageOutcome(_Explained):
    """What became of one Kafka message."""

    ACCEPTED = "accepted", "At least one response event of the message was taken."
    SKIPPED = "skipped", "Well formed, and nothing for us; the reason says what it was."
    BAD_PAYLOAD = "bad_payload", "Could not be read; logged and dead-lettered with its reason."


class SkipReason(_Explained):
    """Why a well-formed message was passed over."""

    TOMBSTONE = "tombstone", "The message has no value: a delete marker of a compacted topic."
    REQUEST_EVENT = "request_event", "The event logs a request, not a response."
    UNRELATED_EVENT = "unrelated_event", "A CloudEvent whose type is none of the response types."
    UNRELATED_BODY = "unrelated_body", "A response of another API (embeddings, classic inference)."
    SKIPPED_BY_OPERATOR = (
        "skipped_by_operator",
        "The setting skip names the message; dead-lettered by reference.",
    )
    EMPTY_BATCH = "empty_batch", "A batch without entries."
    DUPLICATE = "duplicate", "An event of an open request whose sequence had been seen before."
    LATE_REPEAT = "late_repeat", "An event of a request that was already finished."
    REPEATED_RESPONSE = "repeated_response", "A whole response that had been seen before."
    ORPHAN_END = "orphan_end", "An end mark of a request of which nothing else is known."


class BadPayloadReason(_Explained):
    """Why a message could not be read."""

    EMPTY_VALUE = "empty_value", "The value is empty or only white space, without an envelope."
    INVALID_JSON = "invalid_json", "The value starts like JSON and is not."
    TOO_DEEP = "too_deep", "The JSON is nested deeper than the decoder's limit."
    UNRECOGNISED_FORMAT = "unrecognised_format", "Neither JSON nor server-sent events."
    UNRECOGNISED_SHAPE = "unrecognised_shape", "JSON, but no known envelope or response body."
    INVALID_EVENT = "invalid_event", "A native event with a member of a wrong type or value."
    INVALID_CLOUDEVENT = "invalid_cloudevent", "A CloudEvent that breaks a rule of version 1.0."
    INVALID_HEADERS = (
        "invalid_headers",
        "A header whose name is not UTF-8, so that none can be read.",
    )
    INVALID_BASE64 = "invalid_base64", "A base64 member that does not decode."
    UNSUPPORTED_ENCODING = "unsupported_encoding", "A compression that cannot be undone here."
    CORRUPT_ENCODING = "corrupt_encoding", "Compressed bytes that do not inflate."
    INFLATED_TOO_LARGE = "inflated_too_large", "Compressed bytes that inflate above the cap."
    NO_REQUEST_ID = "no_request_id", "A part of a stream that does not say of which request."
    BODY_NOT_A_RESPONSE = "body_not_a_response", "A known envelope around an unknown body."


class RequestOutcome(_Explained):
    """What became of one request."""

    PUBLISHED = "published", "An acceptance record was published."
    NO_STATS = "no_stats", "Finished without acceptance numbers; common, and not an error."
    UNATTRIBUTABLE = "unattributable", "Numbers that cannot be given to one generation (n > 1)."
    MALFORMED_STATS = "malformed_stats", "Numbers that are wrong or contradict each other."
    UNRECOGNISED_STATS = "unrecognised_stats", "A known place is filled, and no adapter claims it."
    AMBIGUOUS_STATS = "ambiguous_stats", "Two adapters claim the same numbers."
    FAILED_RESPONSE = "failed_response", "The server answered with an error."
    INCOMPLETE = "incomplete", "Never finished, and no numbers had arrived."


class NoStatsReason(_Explained):
    """Why a finished response has no numbers."""

    STREAM_WITHOUT_USAGE_CHUNK = (
        "stream_without_usage_chunk",
        "A stream without a usage chunk, on which vLLM would send them: include_usage is off.",
    )
    ENDPOINT_WITHOUT_STATS = (
        "endpoint_without_stats",
        "An API that carries none on any engine (Responses, Anthropic Messages).",
    )
    ABSENT = "absent", "The server sent none: speculation or its reporting is off."


class MalformedReason(_Explained):
    """Why acceptance numbers were rejected."""

    ADAPTER_FAILED = "adapter_failed", "The adapter raised an exception."
    NOT_JSON = "not_json", "The statistics are not valid JSON."
    TOO_LARGE = "too_large", "The statistics are larger than the cap of one place."
    WRONG_TYPE = "wrong_type", "A count is not a JSON integer, or a number is missing."
    NEGATIVE_COUNT = "negative_count", "A count is below zero."
    NOT_FINITE = "not_finite", "A mean or a rate is not a finite number."
    HISTOGRAM_LENGTH = (
        "histogram_length",
        "The histogram does not have num_spec_tokens + 1 buckets.",
    )
    HISTOGRAM_STEPS = "histogram_steps", "The histogram does not sum to the verify steps."
    HISTOGRAM_ACCEPTED = (
        "histogram_accepted",
        "The histogram does not weigh to the accepted drafts.",
    )
    ACCEPTED_EXCEEDS_DRAFTED = "accepted_exceeds_drafted", "More drafts accepted than proposed."
    EXCEEDS_SPEC_TOKENS = "exceeds_spec_tokens", "A step accepted more than num_spec_tokens drafts."
    PER_STEP_LENGTH = "per_step_length", "A per-step array has not one entry per verify step."
    PER_STEP_SUM = "per_step_sum", "A per-step array does not sum to its total."
    PER_STEP_EXCEEDS = "per_step_exceeds", "A step accepted more drafts than it proposed."
    PLACES_DISAGREE = "places_disagree", "Two places of one response report different numbers."
    STEPS_WITHOUT_COUNTS = "steps_without_counts", "No verify steps, and counts above zero."


class IncompleteReason(_Explained):
    """Why a request, or a published record, is not complete."""

    NO_TERMINATOR = "no_terminator", "The body ended without [DONE] or its API's own end."
    TRUNCATED = "truncated", "The body ended in the middle of a line or of a JSON value."
    EMPTY_BODY = "empty_body", "The event had an empty body."
    IDLE_TIMEOUT = "idle_timeout", "No new event for idle_timeout of stream time."
    DAMAGED = "damaged", "A chunk of the stream was not JSON."
    GAP = "gap", "An event of the sequence never came."
    PARTITION_SILENT = (
        "partition_silent",
        "The partition fell silent for idle_timeout of wall time.",
    )
    BOUND = "bound", "The longest idle, when the partition had as many open as a checkpoint holds."
    TOO_LONG = "too_long", "Its first event lies more than max_reread messages behind."
    SEGMENT_OVERFLOW = "segment_overflow", "Raw segments grew above the cap without a line end."
    FIRST_SKIPPED = "first_skipped", "The setting skip names its first event."
    RETENTION = "retention", "Its first events were deleted from the topic before a restart."
