"""Addresses as producers write them, fit to be published."""

import re
from typing import Final

from schemas.record import MAX_TEXT

_USER_INFO: Final = re.compile(r"(?<=//)[^/?#]*@")
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)


def without_secrets(address: str | None) -> str | None:
    """Return an address without user info and query, where credentials stand, and not too long."""
    if address is None:
        return None
    return _QUERY.sub("", _USER_INFO.sub("", address[:MAX_TEXT]))
