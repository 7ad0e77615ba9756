"""The envelopes and formats, described for people and for documents."""

from typing import Any

from consumer.core.envelopes.formats import ENVELOPES, FORMATS, Format

ALL: tuple[Format, ...] = (*ENVELOPES, *FORMATS)


def body_kind(form: Format) -> str:
    """Return what an entry of a format holds."""
    held = "a whole response" if form.whole else "a response, a chunk or a piece"
    if form.base64_if is not None or (form.body and form.body_base64):
        return f"{held}, as JSON or text, or in base64"
    return f"{held}, in base64" if form.body_base64 else f"{held}, as JSON or text"


def format_members(form: Format) -> dict[str, Any]:
    """Return a format as members of a JSON object."""
    return {
        "name": form.name,
        "title": form.title,
        "body": body_kind(form),
        "switch_on": form.switch_on,
        "survives": form.survives,
        "tried_on": form.tried_on,
        "documents": form.documents,
    }


def format_paragraphs(form: Format) -> list[tuple[str, str]]:
    """Return a format as headed paragraphs."""
    return [
        ("format", f"{form.name}: {form.title}"),
        ("holds", body_kind(form)),
        ("switch on", form.switch_on),
        ("survives", form.survives),
        ("tried on", "; ".join(form.tried_on) or "samples made after documents"),
        ("documents", "; ".join(form.documents) or "none"),
    ]
