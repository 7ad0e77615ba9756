"""Times as producers write them."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.core.times import FIRST_EVENT_MS, LAST_EVENT_MS, event_time, rfc3339

NOON_MS = 1_796_040_000_000  # 2026-11-30T12:00:00Z


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2026-11-30T12:00:00Z", 0),
        ("2026-11-30t12:00:00.123z", 123),
        ("2026-11-30T12:00:00.123456", 123),
        ("2026-11-30T12:00:00.123456789Z", 123),
        ("2026-11-30T14:00:00.5+02:00", 500),
        ("2026-11-30T14:00:00+0200", 0),
        ("2026-11-30T12:00Z", 0),
        ("2026-11-30 12:00:00.123", 123),
        ("2026-11-30 12:00:00,123", 123),
        ("2026-11-30 06:30:00.123 -0530", 123),
        ("2026-11-30 12:00:00.123 +0000 UTC", 123),
        ("2026-11-30 12:00:00 UTC", 0),
    ],
)
def test_texts_are_read_as_loggers_write_them(text: str, milliseconds: int) -> None:
    assert event_time(text) == NOON_MS + milliseconds


@pytest.mark.parametrize("scale", [1, 1_000, 1_000_000, 1_000_000_000])
@given(ms=st.integers(FIRST_EVENT_MS, LAST_EVENT_MS))
def test_the_magnitude_of_a_number_tells_its_unit(scale: int, ms: int) -> None:
    number = ms * scale // 1000
    expected = ms // 1000 * 1000 if scale == 1 else ms
    assert event_time(number) == event_time(str(number)) == expected


@given(ms=st.integers(FIRST_EVENT_MS, LAST_EVENT_MS))
def test_seconds_with_a_fraction_keep_their_milliseconds(ms: int) -> None:
    assert event_time(ms / 1000) == event_time(f"{ms / 1000:.3f}") == ms


@pytest.mark.parametrize(
    "stated",
    [
        *(0, -1, 12, 86_400, 1_420_070_399, 4_102_444_800, 10**30),
        *(0.5, math.nan, math.inf, -math.inf),
        *("", "yesterday", "1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "2100-01-01T00:00:00Z"),
        *("2026-11-30", "2026-13-01T00:00:00Z", "12:00:00", "²" * 13, "1" * 5000, "1e12"),
        *(None, True, [NOON_MS], {"seconds": NOON_MS // 1000}),
    ],
)
def test_what_is_no_plausible_time_is_none(stated: object) -> None:
    assert event_time(stated) is None


@given(
    st.none()
    | st.integers()
    | st.floats()
    | st.text()
    | st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
    | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?[.,]?[0-9]{0,9}Z?")
)
def test_a_time_is_never_outside_its_bounds(stated: object) -> None:
    time = event_time(stated)
    assert time is None or FIRST_EVENT_MS <= time <= LAST_EVENT_MS
    assert time is None or "2015" <= (rfc3339(time) or "") < "2100"
