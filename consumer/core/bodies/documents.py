"""JSON documents of responses, decoded into slim structs without their content.

A document is a whole response or one chunk of a stream. The strict decoder skips the content at C
speed; what it refuses (see `json_text`, and members of an unexpected type) is read by a slow and
tolerant path that gives the same struct.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import GenericAlias
from typing import Annotated, Any, Final, Literal, TypeVar, cast

import msgspec
from msgspec import Meta, Raw, Struct, defstruct

from consumer.core.bodies.density import SMALL, has_dense_objects
from consumer.core.bodies.json_text import (
    ABSENT,
    is_cut_off,
    loads_tolerantly,
    raw_json,
    without_surrogates,
)
from consumer.core.bodies.places import Place, PlacesOfLevel
from schemas import BadPayloadReason

T = TypeVar("T", bound=Struct)

_CHOICES: Final = "choices[]."
_MOVED: Final = "provider_specific_fields"  # LiteLLM moves members of a choice to here.
_MAX_INDEX: Final = 100_000
_MAX_MEMBERS: Final = 256  # Of `usage` and `meta_info`, where the strict decoder refuses them.


_Index = Annotated[int, Meta(ge=0, lt=_MAX_INDEX)]


class Choice(Struct, gc=False):
    """One entry of `choices`."""

    index: _Index = 0
    finish_reason: str | None = None


class Document(Struct, gc=False):
    """One JSON document; a subclass adds the members at which adapters' places begin."""

    id: str | None = None
    request_id: str | None = None
    object: str | None = None
    created: int | float | str | None = None
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
    system_fingerprint: str | None = None
    stop: Raw = ABSENT  # This and the following of llama.cpp's native completion.
    stop_type: str | None = None
    tokens_evaluated: Raw = ABSENT
    tokens_predicted: Raw = ABSENT


class ContentChoice(Struct, gc=False):
    """The one choice of a chunk that holds nothing but content."""

    index: Literal[0] = 0
    finish_reason: None = None


class ContentChunk(Struct, gc=False):
    """A chunk that holds nothing but content; a subclass requires the places to be null.

    Decoding fails on every document that may hold more. `Document` accepts all that this accepts,
    up to members that do not matter here.
    """

    id: str
    object: Literal["chat.completion.chunk", "text_completion"]
    choices: list[ContentChoice]


# In the order in which servers write them, since the decoder tries the next field first.
_CLOSED: Final[Sequence[tuple[str, Any, Any]]] = (
    ("usage", None, None),
    ("meta_info", None, None),
    ("index", Literal[0], 0),
    ("request_id", None, None),
    ("type", None, None),
    ("error", None, None),
    ("stop_reason", None, None),
)


class DocumentReader:
    """Decodes documents, and finds the places that adapters declare in them.

    Args:
        places: places as adapters declare them.
        max_choices: maximum number of choices of a document.

    Attributes:
        max_choices: maximum number of choices of a document.
        document_type: struct of a document with these places.
        content_type: struct of a chunk that holds nothing but content.

    Raises:
        PlaceError: a place is not of the form that the protocol describes.

    """

    def __init__(self, places: Iterable[str], max_choices: int) -> None:
        self.max_choices = max_choices
        root = PlacesOfLevel(Document.__struct_fields__, ("usage", "meta_info"))
        of_choice = PlacesOfLevel(Choice.__struct_fields__)
        for name in places:
            path = name.removeprefix(_CHOICES)
            if path == name:
                root.add(name, path)
            else:
                of_choice.add(name, path)
                of_choice.add(name, f"{_MOVED}.{path}")
        self._root_places = list(root.places.values())
        self._choice_places = list(of_choice.places.values())
        self._members, self._choice_members = root.members(), of_choice.members()
        self._choice_type = _struct(Choice, of_choice.raw_fields())
        choices = ("choices", GenericAlias(list, self._choice_type) | None, None)
        self.document_type = _struct(Document, [choices, *root.raw_fields()])
        content_choice = _struct(ContentChoice, of_choice.null_fields())
        content = [("choices", GenericAlias(list, content_choice)), *_CLOSED, *root.null_fields()]
        self.content_type = _struct(ContentChunk, content, kw_only=True)
        self._root_values = _values_at(root.places)
        self._choice_values = _values_at(of_choice.places)
        self._empty_root = self._root_values(self.document_type())
        self._empty_choice = self._choice_values(self._choice_type())
        self._decode = msgspec.json.Decoder(self.document_type).decode
        self._decode_content = msgspec.json.Decoder(list[self.content_type]).decode  # type: ignore[name-defined]

    def read(self, text: bytes) -> Document | BadPayloadReason:
        """Decode one JSON object."""
        if len(text) > SMALL and has_dense_objects(text):
            return BadPayloadReason.TOO_DENSE
        try:
            document = self._decode(text)
        except msgspec.MsgspecError as error:
            if is_cut_off(error):
                return BadPayloadReason.INVALID_JSON
            return self.read_tolerantly(text)
        except RecursionError:
            return BadPayloadReason.TOO_DEEP
        if document.choices is not None and len(document.choices) > self.max_choices:
            return BadPayloadReason.TOO_MANY_CHOICES
        return document

    def read_content(self, texts: Sequence[bytes]) -> list[ContentChunk]:
        """Decode chunks that hold nothing but content; return none if one holds more.

        No text may have a line end: with one before each comma between them, no string reaches
        from one text into the next, and no text passes for two.
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

    def from_value(self, value: dict[str, Any]) -> Document | BadPayloadReason:
        """Build the document from a parsed object, without members of an unexpected type."""
        members = {a: value[name] for name, a in self._members.items() if name in value}
        choices = members.pop("choices", None)
        if isinstance(choices, list) and len(choices) > self.max_choices:
            return BadPayloadReason.TOO_MANY_CHOICES
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
        """Return the declared places that the document fills, with their JSON."""
        found: list[tuple[str, bytes]] = []
        # Nearly all documents fill none, which one comparison shows sooner than a loop.
        if (values := self._root_values(document)) != self._empty_root:
            _find(values, self._root_places, found)
        for choice in document.choices or ():
            if (values := self._choice_values(choice)) != self._empty_choice:
                _find(values, self._choice_places, found)
        return found


def _find(
    values: tuple[Any, ...], places: Sequence[Sequence[Place]], found: list[tuple[str, bytes]]
) -> None:
    """Add what is at the places below each value."""
    for value, below in zip(values, places, strict=True):
        if value is not ABSENT and value is not None:
            is_dict = type(value) is dict
            for place in below:
                # Nearly always a place is not there, and asking it would cost.
                if is_dict and (
                    place.part not in " ".join(value)
                    if place.first is None
                    else place.first not in value
                ):
                    continue
                if text := place.find(value):
                    found += ((place.name, text),)


def _values_at(
    places: Mapping[str, Sequence[Place]],
) -> Callable[[Struct], tuple[Any, ...]]:
    """Return a function that returns the values of a struct at which places begin."""
    if len(places) > 1:  # Else it would return a value that is not in a tuple.
        return attrgetter(*places)
    return lambda struct: tuple(getattr(struct, attribute) for attribute in places)


def _struct(base: type[T], fields: list[Any], *, kw_only: bool = False) -> type[T]:
    """Return a subclass of a struct with further fields."""
    name = f"Placed{base.__name__}"
    return cast("type[T]", defstruct(name, fields, bases=(base,), gc=False, kw_only=kw_only))


def _build(struct: type[Any], members: dict[str, Any]) -> Any:
    """Make a struct of the members whose value fits; the others keep their default."""
    result = struct()
    for attribute, value in members.items():
        if attribute in ("usage", "meta_info"):
            if isinstance(value, dict) and len(value) <= _MAX_MEMBERS:
                setattr(
                    result,
                    attribute,
                    {without_surrogates(k): raw_json(v) for k, v in value.items()},
                )
        elif attribute == "index":
            if type(value) is int and 0 <= value < _MAX_INDEX:
                result.index = value
        elif isinstance(getattr(result, attribute), Raw):
            setattr(result, attribute, raw_json(value))
        elif isinstance(value, str):
            setattr(result, attribute, without_surrogates(value))
        elif type(value) is int:  # Ids are numbers on some servers.
            setattr(result, attribute, value if attribute == "created" else str(value))
    return result
