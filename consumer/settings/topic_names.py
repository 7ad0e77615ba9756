"""Rules for names of topics, and for patterns that match them."""

import re
import warnings
from collections.abc import Callable
from typing import Final

_NAME: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_POSIX_CLASSES: Final = {
    "[:alnum:]": "a-zA-Z0-9",
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:upper:]": "A-Z",
}
# librdkafka passes patterns to the C library, which refuses these or lets them match nothing.
_NOT_POSIX: Final = re.compile(r"\\[a-zA-Z]|\(\?|[*+?}][?+]")


def check_name(topic: str) -> None:
    """Check the name of a topic.

    Raises:
        ValueError: it is not valid; the message says why.

    """
    if not _NAME.fullmatch(topic):
        raise ValueError(
            f"{topic!r} is not a valid topic name: use 1 to 249 letters, digits, '.', '_' or '-'"
        )


def matcher(topic: str) -> Callable[[str], bool]:
    """Return whether a subscription to a topic or pattern includes another topic, as a function.

    Raises:
        ValueError: the topic or pattern is not valid; the message says why.

    """
    if not topic.startswith("^"):
        check_name(topic)
        return topic.__eq__
    if _NOT_POSIX.search(topic):
        raise ValueError(
            f"{topic!r} is not a POSIX regular expression: remove (?...), lazy quantifiers and "
            "backslashes before letters (write [0-9] for a digit)"
        )
    translated = topic
    for posix, python in _POSIX_CLASSES.items():
        translated = translated.replace(posix, python)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Of sets that Python would read in another way.
            pattern = re.compile(translated)
    except (re.error, FutureWarning) as error:
        raise ValueError(f"{topic!r} is not a regular expression: {error}") from None
    return lambda name: pattern.search(name) is not None
