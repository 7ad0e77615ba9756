"""SGLang: `meta_info.spec_*` of native `/generate`, and two forms of it on the OpenAI endpoints.

`/generate` sends the members with every finished request of a speculative server, chat sends them
as `choices[].meta_info` (`return_meta_info`, since 0.5.13), chat and completions as
`sglext.spec_tokens_details` (`return_spec_tokens_details`, since 0.5.19, sgl-project/sglang PR
33518). Names by version, from the wheels up to 0.5.23:

| version | steps | accepted | proposed | histogram |
|---|---|---|---|---|
| up to 0.5.5 | `spec_verify_ct` | - | - | - |
| 0.5.6 to 0.5.10 | `spec_verify_ct` | `spec_accept_token_num` | `spec_draft_token_num` | since 0.5.9 `spec_accept_histogram` |
| 0.5.11 | `spec_verify_ct` | `spec_accepted_drafts` | `spec_proposed_drafts` | `spec_accept_histogram` |
| since 0.5.12 | `spec_verify_ct` | `spec_num_correct_drafts` | `spec_num_proposed_drafts` | `spec_correct_drafts_histogram` |

0.5.12 to 0.5.20 send the names of 0.5.11 as well, with the same values. In all of them the proposed
drafts are nominal: steps by the static width. `sglang_exact` reads the exact ones.
"""  # noqa: E501 - a table cannot be wrapped.

from typing import ClassVar, Final, TypeVar

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import Decoder

from consumer.core.adapters.protocol import UNATTRIBUTABLE, Refusal, malformed
from consumer.core.adapters.sglang_exact import (
    SGLEXT_PLACE,
    ExactStats,
    exact_record,
    exact_stats,
    has_exact_stats,
)
from consumer.core.adapters.wire_counts import (
    WireCount,
    completion_tokens,
    latest,
    read,
    sparse,
)
from schemas import AcceptanceRecord, MalformedReason, ParsedResponse

T = TypeVar("T")

_PLACES: Final = ("meta_info.spec*", "choices[].meta_info.spec*", "sglext.spec_tokens_details")


class _Signature(Struct):
    """The names from which a record can be made, each of which only SGLang writes."""

    spec_verify_ct: Raw | UnsetType = UNSET
    spec_num_correct_drafts: Raw | UnsetType = UNSET
    spec_num_proposed_drafts: Raw | UnsetType = UNSET
    spec_correct_drafts_histogram: Raw | UnsetType = UNSET
    spec_accepted_drafts: Raw | UnsetType = UNSET
    spec_proposed_drafts: Raw | UnsetType = UNSET
    spec_accept_histogram: Raw | UnsetType = UNSET
    spec_accept_token_num: Raw | UnsetType = UNSET
    spec_draft_token_num: Raw | UnsetType = UNSET
    # TokenSpeed, which stems from SGLang, has these beside `spec_verify_ct`.
    spec_accepted_tokens: UnsetType = UNSET
    spec_draft_tokens: UnsetType = UNSET

    def has_a_known_name(self) -> bool:
        return any(getattr(self, name) is not UNSET for name in _OWN_KEYS)


class _SpecMembers(Struct):
    """The members on the wire, of all versions.

    `spec_accept_length` is ignored, because it is completion tokens by steps and not an acceptance
    length, and `spec_accept_rate`, because its denominator has changed.
    """

    spec_verify_ct: WireCount | None = None
    spec_num_correct_drafts: WireCount | None = None
    spec_num_proposed_drafts: WireCount | None = None
    spec_correct_drafts_histogram: list[WireCount] | None = None
    spec_accepted_drafts: WireCount | None = None
    spec_proposed_drafts: WireCount | None = None
    spec_accept_histogram: list[WireCount] | None = None
    spec_accept_token_num: WireCount | None = None
    spec_draft_token_num: WireCount | None = None


class _Counts(Struct, frozen=True):
    """The counts that one place reports, under the names of any version."""

    steps: int | None
    accepted: int | None
    proposed: int | None
    histogram: dict[int, int] | None


_OWN_KEYS: Final = tuple(
    name for name in _Signature.__struct_fields__ if name in _SpecMembers.__struct_fields__
)
_NOTHING: Final = _Counts(None, None, None, None)

# `sglext` is a list if n > 1, and omits sequences without statistics.
_SIGNATURE: Final[Decoder[_Signature | list[_Signature]]] = Decoder(_Signature | list[_Signature])
_MEMBERS: Final[Decoder[_SpecMembers | list[Raw]]] = Decoder(_SpecMembers | list[Raw])


class SGLangAdapter:
    """Reads SGLang's counts; its number of proposed drafts is nominal: steps by static width."""

    engine: ClassVar[str] = "sglang"
    places: ClassVar[tuple[str, ...]] = (
        *_PLACES,
        SGLEXT_PLACE,
    )
    own_keys: ClassVar[tuple[str, ...]] = _OWN_KEYS
    title: ClassVar[str] = "SGLang"
    switch_on: ClassVar[str] = (
        "`/generate` (0.5.4 and later): nothing; chat and completions (0.5.19): "
        '`"return_spec_tokens_details": true` in the request; chat without stream (0.5.13): '
        '`"return_meta_info": true`; measured counts with the flag of PR 34814'
    )

    @classmethod
    def can_adapt(cls, responses: list[ParsedResponse]) -> bool:
        """Claim members of a known name; other members that begin with `spec` are not enough."""
        response = latest(responses, cls.places)
        if response is None:
            return False
        stats = response.stats
        return any(
            _has_a_known_name(stats[place]) for place in _PLACES if place in stats
        ) or has_exact_stats(stats)

    @classmethod
    def adapt(cls, responses: list[ParsedResponse]) -> AcceptanceRecord | Refusal | None:
        """Return the record, or None if the request had no verify steps."""
        response = latest(responses, cls.places)
        if response is None:
            return None
        exact = exact_stats(response.stats)
        if isinstance(exact, Refusal):
            return exact
        reported: list[_Counts] = []
        for place in _PLACES:
            if (raw := response.stats.get(place)) is None:
                continue
            counts = _counts(raw)
            if isinstance(counts, Refusal):
                return counts
            if counts != _NOTHING:
                reported.append(counts)
        if any(counts != reported[0] or _disagrees(counts, exact) for counts in reported):
            return malformed(MalformedReason.PLACES_DISAGREE)
        tokens = completion_tokens(response)
        if exact is not None:
            return exact_record(exact, cls.engine, tokens)
        return _record(reported[0], tokens) if reported else None


def _disagrees(counts: _Counts, exact: ExactStats | None) -> bool:
    """Return whether the counts that are exact in both forms differ."""
    if exact is None:
        return False
    known = exact.num_verification_steps, exact.num_accepted_draft_tokens
    return (counts.steps, counts.accepted) != known


def _has_a_known_name(raw: bytes) -> bool:
    found = read(_SIGNATURE, raw)
    if isinstance(found, Refusal):
        return False
    if isinstance(found, list):
        return any(each.has_a_known_name() for each in found)
    return found.has_a_known_name()


def _counts(raw: bytes) -> _Counts | Refusal:
    members = read(_MEMBERS, raw)
    if isinstance(members, Refusal):
        return members
    if isinstance(members, list):
        return UNATTRIBUTABLE
    histogram = _first(members.spec_correct_drafts_histogram, members.spec_accept_histogram)
    return _Counts(
        steps=members.spec_verify_ct,
        accepted=_first(
            members.spec_num_correct_drafts,
            members.spec_accepted_drafts,
            members.spec_accept_token_num,
        ),
        proposed=_first(
            members.spec_num_proposed_drafts,
            members.spec_proposed_drafts,
            members.spec_draft_token_num,
        ),
        # An empty list stands for a histogram that was not kept (DFLASH, and sglext's default).
        histogram=sparse(histogram) if histogram else None,
    )


def _record(counts: _Counts, completion_tokens: int | None) -> AcceptanceRecord | Refusal | None:
    steps, accepted, drafted = counts.steps, counts.accepted, counts.proposed
    if steps is None:  # Every version sends it.
        return malformed(MalformedReason.WRONG_TYPE, "`spec_verify_ct` is missing")
    if not any((steps, accepted, drafted, counts.histogram)):
        return None  # 0.5.4 to 0.5.8 send zeros where later versions send nothing.
    # Adaptive speculation drafts more than the static width from which the proposals are computed.
    if accepted is not None and drafted is not None and 0 <= drafted < accepted:
        drafted = None
    return AcceptanceRecord(
        engine=SGLangAdapter.engine,
        acceptance_histogram=counts.histogram,
        num_accepted_draft_tokens=accepted,
        num_draft_tokens=drafted,
        num_spec_steps=steps,
        num_spec_tokens=None,  # Not on the wire; for trees, proposed by steps is not k.
        completion_tokens=completion_tokens,
        draft_tokens_measured=False,
    )


def _first(*values: T | None) -> T | None:
    """Return the first value that is present."""
    return next((value for value in values if value is not None), None)
