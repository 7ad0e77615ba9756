"""Times as producers write them, and as records state them."""

import re
from calendar import timegm
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

LAST_MS: Final = 253_402_300_799_999  # The end of the year 9999, where RFC 3339 ends.
_FIRST_MS: Final = 0
# Servers of language models are younger than 2015, and a clock past 2100 is wrong. The last of
# these times is less than a thousand times the first, so that a number has one unit only.
FIRST_EVENT_MS: Final = 1_420_070_400_000  # 2015-01-01T00:00:00Z
LAST_EVENT_MS: Final = 4_102_444_799_999  # The end of the year 2099.
UNSET_TIMES: Final = (0, -1, "", "0", "-1")  # What producers write for no time.
_NO_OFFSET: Final = timedelta(0)
_MILLISECOND: Final = timedelta(milliseconds=1)
_FRACTIONS: Final = tuple(f".{rest:03d}Z" for rest in range(1000))
_NUMBER: Final = re.compile(r"[0-9]{10,19}(\.[0-9]{1,9})?")
_NEARLY_RFC3339: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:[.,]([0-9]{1,9}))?"
    r" ?(?:([+-][0-9]{2}):?([0-9]{2}))?(?:Z| ?UTC)?"
)


def event_time(stated: object) -> int | None:
    """Return the time of an event in milliseconds since 1970, as its producer states it.

    Args:
        stated: RFC 3339 text, also with a space or a comma, without seconds or without an offset,
            which then is UTC; or a number since 1970, also as text, in seconds, milliseconds,
            microseconds or nanoseconds, by its magnitude.

    Returns:
        the time, without what is finer than milliseconds; None unless it is from 2015 to 2099.

    """
    if type(stated) is int or type(stated) is float:
        # The unit that this service documents, and most producers use, without a call.
        if type(stated) is int and FIRST_EVENT_MS <= stated <= LAST_EVENT_MS:
            return stated
        return _of_number(stated)
    if not isinstance(stated, str):
        return None
    if _NUMBER.fullmatch(stated):
        return _of_number(float(stated) if "." in stated else int(stated))
    time = milliseconds(stated)
    if time is None and (text := _as_rfc3339(stated)) is not None:
        time = milliseconds(text)
    return time if time is not None and FIRST_EVENT_MS <= time <= LAST_EVENT_MS else None


def milliseconds(value: str | int | None) -> int | None:
    """Return milliseconds since 1970 from RFC 3339 text or an integer; None if it is neither.

    Fractions of a second finer than milliseconds are cut. A time without an offset is UTC.
    """
    if isinstance(value, str):
        try:
            moment = msgspec.convert(value, datetime)
        except (msgspec.ValidationError, UnicodeEncodeError):  # Of lone surrogates.
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


def _of_number(number: float) -> int | None:
    """Return the time that a number states in the unit of its magnitude."""
    if not FIRST_EVENT_MS // 1000 <= number <= LAST_EVENT_MS * 1_000_000:  # Nor is NaN.
        return None
    if number < FIRST_EVENT_MS:
        time = round(number * 1_000_000) // 1000  # A float holds the microseconds of a second.
    else:
        time = int(number)
        while time > LAST_EVENT_MS:
            time //= 1000
    return time if FIRST_EVENT_MS <= time <= LAST_EVENT_MS else None


def _as_rfc3339(text: str) -> str | None:
    """Return a time as RFC 3339 if it is written nearly so, as loggers do."""
    found = _NEARLY_RFC3339.fullmatch(text)
    if found is None:
        return None
    day, minute, second, fraction, hours, minutes = found.groups()
    offset = f"{hours}:{minutes}" if hours else "Z"
    return f"{day}T{minute}{second or ':00'}.{fraction or 0}{offset}"


@lru_cache(1024)  # Formatting a date takes ten times as long as a look-up.
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
