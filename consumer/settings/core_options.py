"""The options of the core that follow from the settings."""

from consumer.core.partition import Options
from consumer.core.reassembly.limits import Limits
from consumer.settings.settings import Settings


def pipeline_options(settings: Settings, fleet: str) -> Options:
    """Return the core's options."""
    return Options(
        fleet=settings.fleet or fleet,
        labels=settings.labels,
        envelope=settings.envelope,
        paths=dict(settings.paths.items()),
        response_types=settings.response_types,
        label_attributes=settings.label_attributes,
        prediction_tokens=settings.prediction_tokens,
        max_stats_bytes=settings.max_stats_bytes,
        limits=Limits(
            idle_timeout_ms=round(settings.idle_timeout * 1000),
            duplicate_window_ms=round(settings.duplicate_window * 1000),
            max_reread=settings.max_reread,
            max_segment_bytes=settings.max_segment_bytes,
            max_inflated_bytes=settings.max_inflated_bytes,
            max_entries=settings.max_entries,
            max_choices=settings.max_choices,
        ),
        skip=frozenset(map(_place, settings.skip)),
    )


def _place(text: str) -> tuple[str, int, int]:
    topic, partition, offset = text.split(":")
    return topic, int(partition), int(offset)
