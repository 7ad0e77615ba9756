"""The acceptance record of a response: its numbers, its id, and where it came from."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from consumer.core.reassembly.response import Response
from consumer.core.redaction import MASK, is_secret
from consumer.core.times import rfc3339
from schemas import AcceptanceRecord, ParsedResponse, PublishedRecord
from schemas.record import MAX_LABELS, MAX_TEXT

_MAX_LABEL_CHARACTERS: Final = 256


class Origin(Struct, frozen=True):
    """What all records and dead letters of one partition have in common.

    Attributes:
        fleet: name of the fleet.
        topic: input topic.
        partition: input partition.
        labels: labels from the settings.

    """

    fleet: str
    topic: str
    partition: int
    labels: dict[str, str]


def record_of(
    response: Response, acceptance: AcceptanceRecord, parsed: ParsedResponse, origin: Origin
) -> PublishedRecord:
    """Return the record of a response whose numbers an adapter has read."""
    context, facts, usage = response.context, response.facts, parsed.usage
    offset, index = response.place
    return PublishedRecord(
        # One by one, since a dictionary of them takes longer to make and to take apart.
        engine=acceptance.engine,
        mean_acceptance_length=acceptance.mean_acceptance_length,
        draft_acceptance_rate=acceptance.draft_acceptance_rate,
        acceptance_histogram=acceptance.acceptance_histogram,
        num_accepted_draft_tokens=acceptance.num_accepted_draft_tokens,
        num_draft_tokens=acceptance.num_draft_tokens,
        num_spec_steps=acceptance.num_spec_steps,
        num_spec_tokens=acceptance.num_spec_tokens,
        completion_tokens=acceptance.completion_tokens,
        per_step_accepted=acceptance.per_step_accepted,
        per_step_drafted=acceptance.per_step_drafted,
        draft_tokens_measured=acceptance.draft_tokens_measured,
        fleet=origin.fleet,
        request_id=shortened(response.request_id),
        response_id=facts.response_id if facts else None,
        attempt=response.attempt,
        model=model_of(response),
        endpoint=shortened(context.endpoint) if context else None,
        instance=shortened(context.instance) if context else None,
        labels=_merged_labels(origin.labels, context.labels if context else None),
        prompt_tokens=usage.prompt_tokens if usage else None,
        finish_reason=parsed.finish_reason,
        streamed=parsed.streamed,
        stream_complete=response.incomplete is None,
        incomplete_reason=response.incomplete,
        started_at=rfc3339(response.started),
        completed_at=rfc3339(response.completed),
        source_topic=origin.topic,
        source_partition=origin.partition,
        source_first_offset=offset,
        source_last_offset=response.last_offset,
        source_index=index,
        record_id=record_id(response, origin),
    )


def record_id(response: Response, origin: Origin) -> str:
    """Return an id that is the same after a replay, and another on a recreated topic."""
    offset, index = response.place
    return f"{origin.fleet}/{origin.topic}/{origin.partition}/{offset}/{index}/{response.timestamp}"


def model_of(response: Response) -> str | None:
    """Return the model of a response: as the event names it, else as its body does."""
    context, facts = response.context, response.facts
    model = context.model if context else None
    return shortened(model or (facts.model if facts else None))


def shortened(text: str | None) -> str | None:
    """Return the text, cut at the length that records and dead letters keep."""
    return None if text is None else text[:MAX_TEXT]


def _merged_labels(settings: Mapping[str, str], event: Mapping[str, str] | None) -> dict[str, str]:
    """Merge labels: the settings win; those of the event are capped, and credentials masked."""
    if not event:
        return dict(settings)
    labels = {
        name[:_MAX_LABEL_CHARACTERS]: MASK if is_secret(name) else value[:_MAX_LABEL_CHARACTERS]
        for name, value in list(event.items())[:MAX_LABELS]
    }
    return {**labels, **settings}
