"""Records for the tests of the report: single ones, and a day of a fleet."""

from collections.abc import Iterable, Iterator
from math import sin
from random import Random
from typing import Any, Final

import msgspec

from consumer.commands.report.aggregate import aggregate
from consumer.commands.report.sums import Report
from consumer.core.message import TIMESTAMP_CREATE_TIME, CapturedMessage
from consumer.core.times import rfc3339
from consumer.demo.fleet import MODELS, Model
from schemas import PublishedRecord

NOON: Final = 1_767_268_800_000  # 1 January 2026, 12:00 UTC.
HOUR: Final = 3_600_000
_FLEET: Final = (
    (MODELS[0], 10),
    (MODELS[1], 5),
    (MODELS[2], 2),
    (MODELS[3], 6),
    (Model("sglang", "通义千问/Qwen3-8B-中文", 5, 0.76, 0.90), 3),
    (MODELS[5], 3),
    (Model("vllm", "équipe/modèle-fin", 4, 0.62, 0.85), 1),
)


def record(number: int = 0, at: int | None = NOON, **fields: Any) -> PublishedRecord:
    """Return a record of 20 verify steps that accepted 30 of 60 drafts."""
    given: dict[str, Any] = {
        "engine": "vllm",
        "model": "m",
        "instance": "i-0",
        "fleet": "eu",
        "num_spec_steps": 20,
        "num_accepted_draft_tokens": 30,
        "num_draft_tokens": 60,
        "request_id": f"r{number}",
        "response_id": None,
        "attempt": 0,
        "endpoint": None,
        "labels": {},
        "prompt_tokens": None,
        "finish_reason": "stop",
        "streamed": True,
        "stream_complete": True,
        "incomplete_reason": None,
        "started_at": None,
        "completed_at": rfc3339(at),
        "source_topic": "serving-responses",
        "source_partition": 3,
        "source_first_offset": number,
        "source_last_offset": number,
        "source_index": 0,
        "record_id": f"eu/serving-responses/3/{number}/0/{at}",
    }
    return PublishedRecord(**given | fields)


def message(value: PublishedRecord | bytes) -> CapturedMessage:
    """Return a message without a time of its own, as a line of a file is."""
    if isinstance(value, PublishedRecord):
        value = msgspec.json.encode(value)
    return CapturedMessage(the_value=value)


def report(records: Iterable[PublishedRecord], **bounds: int) -> Report:
    return aggregate(map(message, records), **bounds)


def timed(value: PublishedRecord, at: int) -> CapturedMessage:
    """Return a message as it lies in the topic."""
    return CapturedMessage(
        the_value=msgspec.json.encode(value), timestamp_type=TIMESTAMP_CREATE_TIME, timestamp_ms=at
    )


def day(requests: int, seed: int = 1, hours: int = 24) -> Iterator[PublishedRecord]:
    """Return the records of a fleet in order: skewed, with a night, an outage and a bad rollout.

    From 14:00 on, the drafts of one model fit worse; from 03:00 to 04:30 nothing is served.
    """
    rng = Random(seed)
    begin = NOON - 12 * HOUR
    models, weights = zip(*_FLEET, strict=True)
    for number in range(requests):
        at = begin + hours * HOUR * number // requests + rng.randrange(1000)
        hour = (at - begin) / HOUR
        if 3 <= hour % 24 < 4.5 or (hour % 24 < 8 and rng.random() < 0.85):
            continue
        model = rng.choices(models, weights)[0]
        acceptance = (
            model.acceptance + 0.03 * sin(hour) - (0.35 if model is MODELS[1] and hour > 14 else 0)
        )
        yield _served(rng, msgspec.structs.replace(model, acceptance=acceptance), number, at)


def _served(rng: Random, model: Model, number: int, at: int) -> PublishedRecord:
    steps = min(2_000, int(rng.lognormvariate(4, 1)))
    drafted = [
        rng.randint(1, model.num_spec_tokens) if model.adaptive else model.num_spec_tokens
    ] * steps
    fading = [
        msgspec.structs.replace(model, acceptance=model.acceptance - 0.1 * s / 4) for s in range(5)
    ]
    accepted = [
        fading[min(4, place.bit_length() // 2)].verify(rng, most)
        for place, most in enumerate(drafted)
    ]
    histogram: dict[int, int] = {}
    for one in accepted:
        histogram[one] = histogram.get(one, 0) + 1
    nominal = model.engine == "sglang"
    return record(
        number,
        at,
        engine=model.engine,
        model=model.name,
        instance=f"{model.engine}-{number % 3}" if number % 50 else None,
        num_spec_steps=steps,
        num_accepted_draft_tokens=sum(accepted),
        num_draft_tokens=sum(drafted),
        acceptance_histogram=histogram,
        draft_tokens_measured=not nominal,
        per_step_accepted=accepted if model.detailed and steps else None,
        per_step_drafted=drafted if model.detailed and steps else None,
    )
