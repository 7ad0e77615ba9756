"""The acceptance record that adapters return and subscribers read, and the identities it obeys.

Names and definitions of the first eleven fields follow AIPerf's `SpecDecodeAcceptanceRecord`
("Per-Request Speculative-Decoding Acceptance", v0.13); `README.md` beside this file lists the
differences. The mean and the rate of a record follow from its counts wherever it has them; what the
engine states counts only without them.
"""

import math
from operator import mul
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from schemas.reasons import MalformedReason

SCHEMA_VERSION: Final = 1
MAX_COUNT: Final = 2**63 - 1  # Readers in other languages cannot hold larger numbers.
MAX_TEXT: Final = 1024  # Characters kept of an id, a name or an address.
MAX_LABELS: Final = 32  # Kept of one event, since a producer may send any number.

Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Mean = Annotated[float, Meta(ge=1)]
Rate = Annotated[float, Meta(ge=0, le=1)]
_ROUNDING: Final = 0.005  # A statement may be rounded to two decimals.


class AcceptanceRecord(Struct, kw_only=True, frozen=True, gc=False):
    """Engine-neutral acceptance of one request's draft tokens; null is what the engine omits."""

    engine: Annotated[
        str, Meta(description="Serving engine that produced the numbers, named by its adapter.")
    ]
    mean_acceptance_length: Annotated[
        Mean | None,
        Meta(
            description="Mean number of tokens per verify step, including the bonus token: "
            "1 + num_accepted_draft_tokens / num_spec_steps, whatever the engine states. Without "
            "these counts or without verify steps: null, or what the engine states (vLLM: 1.0)."
        ),
    ] = None
    draft_acceptance_rate: Annotated[
        Rate | None,
        Meta(
            description="num_accepted_draft_tokens / num_draft_tokens, whatever the engine states. "
            "Without these counts or without draft tokens: null, or what the engine states "
            "(vLLM: 0.0)."
        ),
    ] = None
    acceptance_histogram: Annotated[
        dict[int, Count] | None,
        Meta(
            description="Number of verify steps by the number of draft tokens that they accepted. "
            "Keys are integers written as strings; empty buckets are omitted; the bonus token does "
            "not count."
        ),
    ] = None
    num_accepted_draft_tokens: Annotated[
        Count | None, Meta(description="Accepted draft tokens, excluding bonus tokens.")
    ] = None
    num_draft_tokens: Annotated[
        Count | None,
        Meta(
            description="Proposed draft tokens; nominal, not counted, where draft_tokens_measured "
            "is false (SGLang, TokenSpeed, FastDeploy, smg)."
        ),
    ] = None
    num_spec_steps: Annotated[Count | None, Meta(description="Number of verify steps.")] = None
    num_spec_tokens: Annotated[
        Count | None,
        Meta(
            description="Maximum number of draft tokens per verify step (k), if the engine has a "
            "fixed one."
        ),
    ] = None
    completion_tokens: Annotated[
        Count | None, Meta(description="Output tokens, from the response's usage.")
    ] = None
    per_step_accepted: Annotated[
        list[Count] | None,
        Meta(description="Draft tokens accepted in each verify step, in order of time."),
    ] = None
    per_step_drafted: Annotated[
        list[Count] | None,
        Meta(description="Draft tokens proposed in each verify step, in order of time."),
    ] = None
    draft_tokens_measured: Annotated[
        bool,
        Meta(
            description="False where the engine states a nominal number of proposed drafts "
            "instead of counting them."
        ),
    ] = True


class PublishedRecord(AcceptanceRecord, kw_only=True, frozen=True, gc=False):
    """The message on the output topic: one flat JSON object in which every field is present."""

    fleet: Annotated[
        str, Meta(description="Name of the fleet (a setting; the cluster id by default).")
    ]
    request_id: Annotated[
        str | None,
        Meta(description="Id of the request, from the event's envelope, else from its body."),
    ]
    response_id: Annotated[
        str | None, Meta(description="Id that the engine gave the response (the body's id).")
    ]
    attempt: Annotated[
        Count,
        Meta(description="Attempt at the request, as the event states it, else counted from 0."),
    ]
    model: Annotated[str | None, Meta(description="Model, from the event, else from the body.")]
    endpoint: Annotated[str | None, Meta(description="Endpoint that was called, from the event.")]
    instance: Annotated[
        str | None, Meta(description="Serving instance; null where the source is only localhost.")
    ]
    labels: Annotated[
        dict[str, str],
        Meta(description="Labels of the event, of its CloudEvents attributes and of the settings."),
    ]
    prompt_tokens: Annotated[
        Count | None, Meta(description="Prompt tokens, from the response's usage.")
    ]
    finish_reason: Annotated[
        str | None, Meta(description="Why the generation ended, as the engine states it.")
    ]
    streamed: Annotated[bool, Meta(description="Whether the response was streamed.")]
    stream_complete: Annotated[
        bool, Meta(description="False if the end of the response was not seen.")
    ]
    incomplete_reason: Annotated[
        str | None,
        Meta(description="Why stream_complete is false; one of the reasons of incomplete."),
    ]
    started_at: Annotated[
        str | None,
        Meta(description="Time of the first event; RFC 3339, UTC, milliseconds."),
    ]
    completed_at: Annotated[
        str | None, Meta(description="Time of the last event; RFC 3339, UTC, milliseconds.")
    ]
    source_topic: Annotated[str, Meta(description="Input topic.")]
    source_partition: Annotated[Count, Meta(description="Input partition.")]
    source_first_offset: Annotated[Count, Meta(description="Offset of the first event.")]
    source_last_offset: Annotated[Count, Meta(description="Offset of the last event.")]
    source_index: Annotated[
        Count, Meta(description="Place of the first event inside its message, from 0.")
    ]
    record_id: Annotated[
        str,
        Meta(
            description="fleet/topic/partition/offset/index/timestamp of the first event, where "
            "timestamp is its Kafka timestamp in milliseconds, or -1. A replay gives the same id; "
            "a recreated topic gives another."
        ),
    ]
    schema_version: Annotated[int, Meta(description="Version of this schema.")] = SCHEMA_VERSION


def with_derived(record: AcceptanceRecord) -> AcceptanceRecord:
    """Return the record with the mean and the rate that follow from its counts.

    Where they do not follow, what the engine states stays.
    """
    accepted = record.num_accepted_draft_tokens
    mean, rate = record.mean_acceptance_length, record.draft_acceptance_rate
    if accepted is not None:
        if record.num_spec_steps:
            mean = 1 + accepted / record.num_spec_steps
        if record.num_draft_tokens:
            rate = accepted / record.num_draft_tokens
    if mean == record.mean_acceptance_length and rate == record.draft_acceptance_rate:
        return record
    return replace(record, mean_acceptance_length=mean, draft_acceptance_rate=rate)


def differing_statements(stated: AcceptanceRecord, record: AcceptanceRecord) -> tuple[str, ...]:
    """Return which of mean and rate an engine states differently from the record.

    Args:
        stated: the record with what the engine states.
        record: the same with what its counts give, from `with_derived`.

    Returns:
        names of the fields; a difference of up to half a hundredth is rounding.

    """
    return tuple(
        [
            name
            for name in ("mean_acceptance_length", "draft_acceptance_rate")
            if (statement := getattr(stated, name)) is not None
            # Not `>`, which is false for a statement that is not a number.
            and not abs(statement - getattr(record, name)) <= _ROUNDING
        ]
    )


def violated_identity(record: AcceptanceRecord) -> MalformedReason | None:
    """Return the first identity that the record's numbers violate, or None.

    The identities between counts are exact. A mean or a rate is checked only where no counts give
    it. Numbers that are null violate none.
    """
    steps, accepted, drafted = (
        record.num_spec_steps,
        record.num_accepted_draft_tokens,
        record.num_draft_tokens,
    )
    if (reason := _bad_counts(record)) is not None:
        return reason
    if accepted is not None and drafted is not None and accepted > drafted:
        return MalformedReason.ACCEPTED_EXCEEDS_DRAFTED
    histogram, limit = record.acceptance_histogram, record.num_spec_tokens
    if histogram is not None:
        if steps is not None and sum(histogram.values()) != steps:
            return MalformedReason.HISTOGRAM_STEPS
        if accepted is not None and sum(map(mul, histogram, histogram.values())) != accepted:
            return MalformedReason.HISTOGRAM_ACCEPTED
        if limit is not None and histogram and max(histogram) > limit:
            return MalformedReason.EXCEEDS_SPEC_TOKENS
    if steps == 0 and (accepted or drafted):
        return MalformedReason.STEPS_WITHOUT_COUNTS
    if record.per_step_accepted is not None or record.per_step_drafted is not None:
        reason = _violated_per_step(record)
    if reason is not None or (accepted is not None and steps and drafted):
        return reason
    return _bad_statement(record)


def _bad_counts(record: AcceptanceRecord) -> MalformedReason | None:
    """Check that each count is an integer from 0 to MAX_COUNT."""
    for count in (
        record.num_spec_steps,
        record.num_accepted_draft_tokens,
        record.num_draft_tokens,
        record.num_spec_tokens,
        record.completion_tokens,
    ):
        if count is not None and (type(count) is not int or not 0 <= count <= MAX_COUNT):
            return _bad_count(count)
    numbers: list[object] = []
    for pair in (record.acceptance_histogram or {}).items():
        numbers += pair
    numbers += record.per_step_accepted or ()
    numbers += record.per_step_drafted or ()
    for number in numbers:
        if type(number) is not int or not 0 <= number <= MAX_COUNT:
            return _bad_count(number)
    return None


def _bad_count(value: object) -> MalformedReason:
    """Return why a value is not a count; a bool is not one, although it is an int in Python."""
    negative = type(value) is int and value < 0
    return MalformedReason.NEGATIVE_COUNT if negative else MalformedReason.WRONG_TYPE


def _bad_statement(record: AcceptanceRecord) -> MalformedReason | None:
    """Check the bounds of a mean and a rate that do not follow from the counts."""
    stated = with_derived(record)
    mean, rate = stated.mean_acceptance_length, stated.draft_acceptance_rate
    if (mean is None or _is_within(mean, 1, math.inf)) and (rate is None or _is_within(rate, 0, 1)):
        return None
    return MalformedReason.OUT_OF_RANGE


def _is_within(value: object, low: float, high: float) -> bool:
    return isinstance(value, float) and math.isfinite(value) and low <= value <= high


def _violated_per_step(record: AcceptanceRecord) -> MalformedReason | None:
    accepted, drafted = record.per_step_accepted, record.per_step_drafted
    for array, total in (
        (accepted, record.num_accepted_draft_tokens),
        (drafted, record.num_draft_tokens),
    ):
        if array is None:
            continue
        if record.num_spec_steps is not None and len(array) != record.num_spec_steps:
            return MalformedReason.PER_STEP_LENGTH
        if total is not None and sum(array) != total:
            return MalformedReason.PER_STEP_SUM
    if accepted is not None and drafted is not None:
        if len(accepted) != len(drafted):
            return MalformedReason.PER_STEP_LENGTH
        if any(a > d for a, d in zip(accepted, drafted, strict=True)):
            return MalformedReason.PER_STEP_EXCEEDS
    return None
