"""Credentials, recognised by name and by form: one list for logs, dead letters and settings."""

import re
from typing import Final

from schemas.record import MAX_TEXT

MASK: Final = "[masked]"

_SECRET: Final = re.compile(
    r"pass(word|wd|phrase)|secret|credential|jaas|authorization|cookie|signature|api.?key"
    r"|oauthbearer\.config|token(?!s)|.key(?![a-z])|[._]pem\b",
    re.IGNORECASE,
)
_NOT_SECRET: Final = re.compile(
    r"[._](location|url|file|(de)?serializer|client\.id)$|(message|partition|routing)[._-]?key$",
    re.IGNORECASE,
)
# A password may hold "/" and "@" by mistake, so what follows "user:" is masked up to the last "@".
_USER_INFO: Final = re.compile(
    r"""(?:(?<=//)(?:[^/@:\s]*:\S*|[^/\s]+)"""  # Of a URL.
    r"""|(?<![^\s,;'"(=\[])[^\s,;'"(=\[@:/]*:(?!//)[^\s,]*)(?=@)"""  # Of a host in a list.
)
# Narrower than the names of settings: payloads have tokens and keys of other kinds.
_NAME: Final = (
    r"[\w-]{0,40}(?:authorization|api[-_]?key|cookie|secret|password|credentials?"
    r"|(?:access|auth|bearer|id|refresh)[-_]token)"
)
# A member of JSON, or of JSON inside a string of JSON.
_MEMBER: Final = re.compile(rf'"{_NAME}\\*"\s*:'.encode(), re.IGNORECASE)
_IN_TEXT: Final = re.compile(
    rf'(?P<before>"{_NAME}\\*"\s*:\s*)(?:\\+"[^"\\]*|"(?:[^"\\]|\\.)*|[^\s,}}\]]+)'
    rf"|(?P<header>\b{_NAME}\s*[:=]\s*)[^\r\n\"\\]+"
    r"|(?P<scheme>\b(?:basic|bearer|digest|negotiate)\s+)[\w.~+/=-]{4,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^\"]*"
    # Keys of OpenAI and its like, GitHub, Slack, AWS, Hugging Face; JSON web tokens.
    r"|\b(?:[spr]k-|gh[opsur]_|xox[a-z]-|AKIA|hf_)[\w-]{12,}|\beyJ[\w-]{8,}\.[\w.-]*",
    re.IGNORECASE,
)
_URL_USER_INFO: Final = re.compile(r"(?<=//)[^/?#]*@")
_URL_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)
_MARGIN_BYTES: Final = 512  # More than the start by which a credential is recognised.


def is_secret(name: str) -> bool:
    """Return whether a property, field or header of this name holds a credential.

    A message key (`key`), a count of tokens and the path of a secret's file do not.
    """
    return _SECRET.search(name) is not None and _NOT_SECRET.search(name) is None


def mask_user_info(text: str) -> str:
    """Mask the user and password that a URL, or a host in a list, has in the text."""
    return _USER_INFO.sub(MASK, text) if "@" in text else text


def without_secrets(address: str | None) -> str | None:
    """Return an address without user info and query, which may hold credentials, and capped."""
    if address is None:
        return None
    return _URL_QUERY.sub("", _URL_USER_INFO.sub("", address[:MAX_TEXT]))


def holds_credentials(value: bytes) -> bool:
    """Return whether a payload has a member with the name of a credential."""
    return _MEMBER.search(value) is not None


def preview(payload: bytes, max_bytes: int) -> str:
    """Return the start of a payload, with whatever looks like a credential masked.

    For operators who asked to see payloads: everything else is shown.
    """
    start = payload[: max_bytes + _MARGIN_BYTES].decode(errors="replace")
    masked = mask_user_info(_IN_TEXT.sub(_masked, start))
    return masked.encode()[:max_bytes].decode(errors="replace")


def _masked(match: re.Match[str]) -> str:
    return (match["before"] or match["header"] or match["scheme"] or "") + MASK
