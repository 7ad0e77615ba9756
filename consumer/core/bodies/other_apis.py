"""Answers of APIs that never carry acceptance numbers, by the members that only they have.

A fleet logs more than completions. These answers are skipped under the name of their API, so that
what fits nothing remains visible.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Raw

from consumer.core.bodies.json_text import raw_members
from schemas import SkipReason

# Each signature, with names of members that are all there; `results[].flagged` is a member of the
# first entry of an array. The first that fits counts. Sources: the API references of OpenAI,
# Cohere, Ollama, Triton, KServe, TGI, TEI, vLLM, SGLang and llama.cpp.
_MEMBERS: Final[tuple[tuple[SkipReason, tuple[str, ...]], ...]] = (
    (SkipReason.TRITON_GENERATE, ("model_name", "text_output")),
    (SkipReason.TGI_GENERATE, ("generated_text",)),
    (SkipReason.OLLAMA, ("created_at", "done")),
    (SkipReason.LMSTUDIO_CHAT, ("model_instance_id", "output[]")),
    (SkipReason.TOKENIZE, ("tokens", "count")),
    (SkipReason.TOKENIZE, ("tokens", "max_model_len")),
    (SkipReason.INFERENCE, ("outputs[].name",)),
    (SkipReason.INFERENCE, ("outputs[].datatype",)),
    (SkipReason.INFERENCE, ("predictions[]",)),
    (SkipReason.EMBEDDINGS, ("embeddings[]",)),
    (SkipReason.EMBEDDINGS, ("data[].embedding",)),
    (SkipReason.SCORE, ("data[].score",)),
    (SkipReason.CLASSIFY, ("data[].probs",)),
    (SkipReason.CLASSIFY, ("data[].label",)),
    (SkipReason.MODELS, ("data[].owned_by",)),
    (SkipReason.MODERATION, ("results[].flagged",)),
    (SkipReason.RERANK, ("results[].relevance_score",)),
    (SkipReason.MODELS, ("models[].name",)),
    (SkipReason.IMAGES, ("data[].b64_json",)),
    (SkipReason.IMAGES, ("data[].url",)),
)
# Answers that have these members and no others.
_ONLY: Final[tuple[tuple[SkipReason, frozenset[str], frozenset[str]], ...]] = (
    (
        SkipReason.TRANSCRIPTION,
        frozenset({"text"}),
        frozenset({"text", "usage", "language", "duration", "segments", "words", "task", "x_groq"}),
    ),
    (SkipReason.TOKENIZE, frozenset({"tokens"}), frozenset({"tokens"})),
    (SkipReason.DETOKENIZE, frozenset({"prompt"}), frozenset({"prompt"})),
    (SkipReason.SERVER_STATUS, frozenset({"status"}), frozenset({"status"})),
    (SkipReason.SERVER_STATUS, frozenset({"version"}), frozenset({"version"})),
    (SkipReason.SERVER_STATUS, frozenset({"name", "ready"}), frozenset({"name", "ready"})),
)
_OF_ARRAYS: Final[tuple[tuple[SkipReason, frozenset[str]], ...]] = (
    (SkipReason.TGI_GENERATE, frozenset({"generated_text"})),
    (SkipReason.RERANK, frozenset({"index", "score"})),
    (SkipReason.EMBEDDINGS, frozenset({"embedding"})),
    (SkipReason.CLASSIFY, frozenset({"label", "score"})),
)
# Arrays that no answer with generations has, in shapes that have no name here.
_UNRELATED_ARRAYS: Final = ("predictions[]", "outputs[]", "data[]", "results[]")
_ALL_NAMES: Final = frozenset(
    {path.partition("[]")[0] for _, signature in _MEMBERS for path in signature}
    | {name for _, required, _ in _ONLY for name in required}
)
_ARRAY: Final = b"["


def members_of(text: bytes) -> Mapping[str, Raw]:
    """Return the members of a JSON object as raw JSON; none if it is not an object."""
    members = raw_members(text)
    return members if isinstance(members, dict) else {}


def other_api(members: Mapping[str, Raw]) -> SkipReason | None:
    """Return which other API an object with these members is an answer of, or None."""
    names = members.keys()
    if names.isdisjoint(_ALL_NAMES):
        return None
    for api, signature in _MEMBERS:
        if all(_has(members, path) for path in signature):
            return api
    for api, required, allowed in _ONLY:
        if required <= names <= allowed:
            return api
    if any(_has(members, path) for path in _UNRELATED_ARRAYS):
        return SkipReason.UNRELATED_BODY
    return None


def api_of_entry(entry: object) -> SkipReason | None:
    """Return which other API an array that begins with a parsed entry is an answer of, or None."""
    if isinstance(entry, list) and entry and isinstance(entry[0], int | float):
        return SkipReason.EMBEDDINGS
    if not isinstance(entry, dict):
        return None
    return next((api for api, names in _OF_ARRAYS if names <= entry.keys()), None)


def is_framework_error(members: Mapping[str, Raw]) -> bool:
    """Return whether an object is an error of FastAPI: `detail` and nothing else."""
    return members.keys() == {"detail"}


def _has(members: Mapping[str, Raw], path: str) -> bool:
    name, is_array, inner = path.partition("[]")
    if name not in members:
        return False
    if not is_array:
        return True
    text = bytes(members[name])
    if not text.startswith(_ARRAY):
        return False
    return not inner or inner[1:] in _first_entry(text)


def _first_entry(array: bytes) -> Mapping[str, Raw]:
    entries = raw_members(array)
    return members_of(bytes(entries[0])) if isinstance(entries, list) and entries else {}
