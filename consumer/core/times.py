"""Times as producers write them, and as records state them."""

from calendar import timegm
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

LAST_MS: Final = 253_402_300_799_999  # The end of the year 9999, where RFC 3339 ends.
_FIRST_MS: Final = 0
_NO_OFFSET: Final = timedelta(0)
_MILLISECOND: Final = timedelta(milliseconds=1)
_FRACTIONS: Final = tuple(f".{rest:03d}Z" for rest in range(1000))


def milliseconds(value: str | int | None) -> int | None:
    """Return milliseconds since 1970 from RFC 3339 text or an integer; None if it is neither.

    Fractions of a second finer than milliseconds are cut. A time without an offset is UTC.
    """
    if isinstance(value, str):
        try:
            moment = msgspec.convert(value, datetime)
        except msgspec.ValidationError:
            return None
        offset = moment.utcoffset() or _NO_OFFSET
        value = timegm(moment.timetuple()) * 1000 + moment.microsecond // 1000
        value -= offset // _MILLISECOND  # A datetime could not pass the year 9999.
    return value if value is not None and _FIRST_MS <= value <= LAST_MS else None


def rfc3339(ms: int | None) -> str | None:
    """Return milliseconds since 1970 as RFC 3339 in UTC with three decimals."""
    if ms is None:
        return None
    second, rest = divmod(ms, 1000)
    return _second(second) + _FRACTIONS[rest]


@lru_cache(1024)  # Formatting a date takes ten times as long as a look-up.
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
