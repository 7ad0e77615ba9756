"""JSON documents of responses: decoded once, with only what matters kept.

A document is a whole response or one chunk of a stream. It is decoded into a slim struct that
skips the content at C speed. What the strict decoder refuses and the field still sends (NaN, lone
surrogates, raw control characters, broken UTF-8, a member of an odd type) is read again by a slow
and tolerant path that gives the same struct.
"""

import json
import math
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta, Raw, Struct, defstruct, field

from schemas import BadPayloadReason

ABSENT: Final = Raw()
_NULL: Final = b"null"
_CUT_OFF: Final = "Input data was truncated"  # As msgspec says it.
_MAX_CHOICES: Final = 100_000

_decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode

_Index = Annotated[int, Meta(ge=0, lt=_MAX_CHOICES)]


class Choice(Struct, gc=False):
    """One entry of `choices`."""

    index: _Index = 0
    finish_reason: str | None = None


class Document(Struct, gc=False):
    """One JSON document; a subclass adds the members at which adapters' places begin."""

    id: str | None = None
    request_id: str | None = None
    object: str | None = None
    type: str | None = None
    model: str | None = None
    index: _Index = 0
    choices: list[Choice] | None = None
    usage: dict[str, Raw] | None = None
    meta_info: dict[str, Raw] | None = None
    error: Raw = ABSENT
    response: Raw = ABSENT
    message: Raw = ABSENT
    delta: Raw = ABSENT
    stop_reason: str | None = None


class ContentChoice(Struct, gc=False):
    """The one choice of a chunk that says nothing but content."""

    index: Literal[0] = 0
    finish_reason: None = None


class ContentChunk(Struct, gc=False):
    """A chunk that says nothing but content; a subclass closes what can say more.

    Decoding fails on every document that can say more. What it takes, `Document` takes as well, or
    it differs in members that do not matter here.
    """

    id: str
    object: Literal["chat.completion.chunk", "text_completion"]
    choices: list[ContentChoice]


# The decoder looks at the next field first: in the order of servers.
_CLOSED: Final[Sequence[tuple[str, Any, Any]]] = (
    ("usage", None, None),
    ("meta_info", None, None),
    ("index", Literal[0], 0),
    ("request_id", None, None),
    ("type", None, None),
    ("error", None, None),
    ("stop_reason", None, None),
)


class Shape(Enum):
    """What a document is."""

    CHUNK = auto()
    WHOLE = auto()
    API_EVENT = auto()  # Of an API with events of its own: Responses, Anthropic Messages.
    ERROR = auto()
    UNRELATED = auto()
    UNKNOWN = auto()


# Members by names of modules: CPython 3.11 looks them up on their class ten times as long.
_CHUNK: Final = Shape.CHUNK
_WHOLE: Final = Shape.WHOLE
_OTHER_OBJECTS: Final = frozenset({"list", "embedding", "model", "rerank", "score", "classify"})
_OTHER_MEMBERS: Final = frozenset({"predictions", "outputs", "embeddings", "data", "results"})
_ANTHROPIC_EVENTS: Final = frozenset(
    {
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "ping",
    }
)


class _Place(Struct, frozen=True):
    """A declared place, taken apart."""

    name: str
    attribute: str
    path: tuple[str, ...]  # Members below the first one.
    prefix: str | None  # Of the last members, where the place ends in `*`.


class PlaceError(ValueError):
    """An adapter declares a place that cannot be kept."""


class DocumentReader:
    """Decodes documents and knows the places that adapters declare.

    Args:
        places: as adapters declare them.

    Raises:
        PlaceError: a place is not of the form that the protocol describes.

    """

    def __init__(self, places: Iterable[str]) -> None:
        roots: dict[str, str] = {}
        choice_roots: dict[str, str] = {}
        self._root_places: list[tuple[str, _Place]] = []  # Each with its attribute.
        self._choice_places: list[tuple[str, _Place]] = []
        for name in places:
            of_choices = name.startswith("choices[].")
            taken, known = (choice_roots, Choice) if of_choices else (roots, Document)
            place = _parse_place(name, name.removeprefix("choices[]."), known, taken)
            places_there = self._choice_places if of_choices else self._root_places
            places_there.append((place.attribute, place))
        choice = cast(
            "type[Choice]",
            defstruct("PlacedChoice", _fields(choice_roots), bases=(Choice,), gc=False),
        )
        fields = [("choices", list[choice] | None, None), *_fields(roots)]  # type: ignore[valid-type]
        self.document_type = cast(
            "type[Document]",
            defstruct("PlacedDocument", fields, bases=(Document,), gc=False),
        )
        content_choice: Any = defstruct(
            "PlacedContentChoice", _none_of(choice_roots), bases=(ContentChoice,), gc=False
        )
        content: list[Any] = [("choices", list[content_choice]), *_CLOSED, *_none_of(roots)]
        self.content_type = cast(
            "type[ContentChunk]",
            defstruct("PlacedContentChunk", content, bases=(ContentChunk,), gc=False, kw_only=True),
        )
        self._choice_type = choice
        self._members = {**_static_members(Document), **roots}
        self._choice_members = {**_static_members(Choice), **choice_roots}
        self._decode = msgspec.json.Decoder(self.document_type).decode
        self._decode_content = msgspec.json.Decoder(list[self.content_type]).decode  # type: ignore[name-defined]

    def read(self, text: bytes) -> Document | BadPayloadReason:
        """Decode one JSON object."""
        try:
            return self._decode(text)
        except msgspec.MsgspecError as error:
            if is_cut_off(error):
                return BadPayloadReason.INVALID_JSON
            return self.read_tolerantly(text)
        except RecursionError:
            return BadPayloadReason.TOO_DEEP

    def read_content(self, texts: Sequence[bytes]) -> list[ContentChunk]:
        """Decode chunks that say nothing but content; empty if one says more.

        No text may have a line end: with one before each comma between them, no string reaches
        from one text into the next, nor does any text pass for two.
        """
        try:
            chunks = self._decode_content(b"[%b]" % b"\n,".join(texts))
        except (msgspec.MsgspecError, RecursionError):
            return []
        return chunks if len(chunks) == len(texts) else []

    def read_tolerantly(self, text: bytes) -> Document | BadPayloadReason:
        """Decode one JSON object that the strict decoder refuses."""
        value = loads_tolerantly(text)
        if isinstance(value, BadPayloadReason):
            return value
        if not isinstance(value, dict):
            return BadPayloadReason.UNRECOGNISED_SHAPE
        return self.from_value(value)

    def from_value(self, value: dict[str, Any]) -> Document:
        """Build the document from a parsed object, leaving out members of an odd type."""
        members = {a: value[name] for name, a in self._members.items() if name in value}
        choices = members.pop("choices", None)
        document: Document = _build(self.document_type, members)
        if isinstance(choices, list):
            document.choices = [
                _build(
                    self._choice_type,
                    {a: entry[name] for name, a in self._choice_members.items() if name in entry},
                )
                for entry in choices
                if isinstance(entry, dict)
            ]
        return document

    def stats(self, document: Document) -> list[tuple[str, bytes]]:
        """Return the declared places that the document fills, each with its JSON; rarely any."""
        found: list[tuple[str, bytes]] = []
        for attribute, place in self._root_places:
            value = getattr(document, attribute)
            if value is not ABSENT and value is not None:
                _find(place, value, found)
        for choice in document.choices or ():
            for attribute, place in self._choice_places:
                value = getattr(choice, attribute)
                if value is not ABSENT:
                    _find(place, value, found)
        return found


def shape_of(document: Document) -> Shape:
    """Tell what a document is, by members of the APIs and never by an engine's own."""
    # Nearly all documents are one of two, of which the rules below say the same.
    if document.error is ABSENT and document.type is None and document.choices is not None:
        if document.object == "chat.completion.chunk":
            return _CHUNK
        if document.object == "chat.completion":
            return _WHOLE
    return _shape_of_any(document)


def _shape_of_any(document: Document) -> Shape:
    if is_set(document.error) or document.object == "error" or document.type == "error":
        return Shape.ERROR
    if document.choices is not None:
        if document.object is not None and document.object.endswith(".chunk"):
            return Shape.CHUNK
        whole = document.object == "chat.completion" or _is_finished(document)
        return Shape.WHOLE if whole else Shape.CHUNK
    if document.meta_info is not None:
        return (
            Shape.WHOLE
            if "finish_reason" in document.meta_info and is_set(document.meta_info["finish_reason"])
            else Shape.CHUNK
        )
    if document.type is not None:
        if document.type.startswith("response.") or document.type in _ANTHROPIC_EVENTS:
            return Shape.API_EVENT
        if document.type == "message":
            return Shape.WHOLE
    if document.object == "response":
        return Shape.WHOLE
    return Shape.UNRELATED if document.object in _OTHER_OBJECTS else Shape.UNKNOWN


def is_unrelated(text: bytes) -> bool:
    """Tell whether an unknown JSON object is a response of an API that has no generations."""
    members = raw_members(text)
    return isinstance(members, dict) and not _OTHER_MEMBERS.isdisjoint(members)


def raw_members(text: bytes) -> dict[str, Raw] | list[Raw] | BadPayloadReason:
    """Return the members of a JSON object, or the entries of an array, as raw JSON."""
    try:
        if text.startswith(b"["):
            return msgspec.json.decode(text, type=list[Raw])
        return _decode_members(text)
    except msgspec.MsgspecError:
        value = loads_tolerantly(text)
    except RecursionError:
        return BadPayloadReason.TOO_DEEP
    if isinstance(value, dict):
        return {_text(name): raw_json(member) for name, member in value.items()}
    if isinstance(value, list):
        return [raw_json(entry) for entry in value]
    return value if isinstance(value, BadPayloadReason) else BadPayloadReason.UNRECOGNISED_SHAPE


def loads_tolerantly(text: bytes) -> Any | BadPayloadReason:
    """Parse JSON as the field writes it.

    NaN and infinities become null, broken UTF-8 becomes replacement characters, control characters
    in strings are taken, integers of any length are kept, of equal keys the last one wins. Lone
    surrogates stay, and must be replaced before anything is written.
    """
    try:
        value = _decode_tolerantly(text.decode("utf-8", "replace"))
    except RecursionError:
        return BadPayloadReason.TOO_DEEP
    except ValueError:
        return BadPayloadReason.INVALID_JSON
    return value


def is_cut_off(error: msgspec.MsgspecError) -> bool:
    """Tell whether it was the end of a text that came too early, which no tolerance mends."""
    return str(error) == _CUT_OFF


def is_set(raw: Raw) -> bool:
    """Tell whether a raw member is there and not null."""
    return raw is not ABSENT and bytes(memoryview(raw)[:5]) not in (b"", _NULL)


def raw_json(value: Any) -> Raw:
    """Write a value that was read tolerantly, lone surrogates replaced; absent if that fails."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, ValueError):
        return ABSENT
    return Raw(text.encode("utf-8", "replace"))


def _integer(digits: str) -> int | float:
    """Read an integer; one above CPython's limit of digits is no count, and reads as a float."""
    try:
        return int(digits)
    except ValueError:
        return float(digits[:300])


def _float(digits: str) -> float | None:
    """Read a number with a point or exponent; one that overflows is no number at all."""
    number = float(digits)
    return number if math.isfinite(number) else None


# Made once, since making it takes as long as reading a small text.
_decode_tolerantly: Final = json.JSONDecoder(
    strict=False, parse_int=_integer, parse_float=_float, parse_constant=lambda _: None
).decode


def _is_finished(document: Document) -> bool:
    """Tell a whole completion from a chunk where both have the same `object` or none."""
    return (
        bool(document.choices)
        and document.usage is not None
        and all(choice.finish_reason is not None for choice in document.choices or ())
    )


def _parse_place(name: str, path: str, known: type[Struct], taken: dict[str, str]) -> _Place:
    first, *rest = path.split(".")
    prefix = rest.pop()[:-1] if rest and rest[-1].endswith("*") else None
    if not all([first, *rest]) or "*" in "".join([first, *rest]) or "[" in path:
        raise PlaceError(f"place {name!r}: expected members joined by dots, such as a.b or a.b*")
    if first in known.__struct_fields__:
        if known is not Document or first not in ("usage", "meta_info") or path == first:
            raise PlaceError(f"place {name!r}: {first!r} is a member of every response")
        return _Place(name, first, tuple(rest), prefix)
    attribute = taken.setdefault(first, f"place_{len(taken)}")
    return _Place(name, attribute, tuple(rest), prefix)


def _fields(roots: dict[str, str]) -> list[tuple[str, Any, Any]]:
    return [(attribute, Raw, field(default=ABSENT, name=name)) for name, attribute in roots.items()]


def _none_of(roots: dict[str, str]) -> list[tuple[str, Any, Any]]:
    return [(attribute, None, field(default=None, name=name)) for name, attribute in roots.items()]


def _static_members(struct: type[Struct]) -> dict[str, str]:
    return {name: name for name in struct.__struct_fields__}


def _find(place: _Place, value: Raw | dict[str, Raw], found: list[tuple[str, bytes]]) -> None:
    """Walk down the place's path and append what is there, if it is not null."""
    for name in place.path:
        members = _members(value)
        if name not in members:
            return
        value = members[name]
    if place.prefix is not None:
        members = _members(value)
        kept = {k: v for k, v in members.items() if k.startswith(place.prefix) and is_set(v)}
        if kept:
            found.append((place.name, msgspec.json.encode(kept)))
    elif isinstance(value, Raw) and (text := bytes(value)) and text != _NULL:
        found.append((place.name, text))


def _members(value: Raw | dict[str, Raw]) -> dict[str, Raw]:
    if isinstance(value, dict):
        return value
    try:
        return _decode_members(value)
    except (msgspec.MsgspecError, RecursionError):
        return {}


def _build(struct: type[Any], members: dict[str, Any]) -> Any:
    """Make a struct of the members whose value fits; the others keep their default."""
    result = struct()
    for attribute, value in members.items():
        if attribute in ("usage", "meta_info"):
            if isinstance(value, dict):
                setattr(result, attribute, {_text(k): raw_json(v) for k, v in value.items()})
        elif attribute == "index":
            if type(value) is int and 0 <= value < _MAX_CHOICES:
                result.index = value
        elif isinstance(getattr(result, attribute), Raw):
            setattr(result, attribute, raw_json(value))
        elif isinstance(value, str):
            setattr(result, attribute, _text(value))
        elif type(value) is int:  # Ids are numbers on some servers.
            setattr(result, attribute, str(value))
    return result


def _text(value: str) -> str:
    """Replace lone surrogates, which no encoder would write."""
    return value.encode("utf-8", "replace").decode()
