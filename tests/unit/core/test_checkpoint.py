"""Checkpoints: back as they were written, never too large, and never taken for another's."""

from base64 import urlsafe_b64encode
from random import Random
from zlib import crc32

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from consumer.core.checkpoint import (
    MAX_METADATA,
    Checkpoint,
    Ignored,
    NewerCheckpointError,
    decode,
    encode,
    open_budget,
    place_bits,
    settings_digest,
    topic_hash,
)
from consumer.core.message import EventPlace
from consumer.core.reassembly.limits import Limits
from consumer.core.stream_time import MAX_BEHIND, MAX_MEDIANS, BlockState
from consumer.core.times import FIRST_EVENT_MS, LAST_EVENT_MS
from tests.unit.core.made import BEGIN_MS

TOPIC = topic_hash("a topic id")
SETTINGS = settings_digest(Limits())
CHECKPOINT = Checkpoint(
    1000,
    TOPIC,
    SETTINGS,
    BlockState(896, 7_000, BEGIN_MS, 3, (BEGIN_MS + 90_000, 5_000), (BEGIN_MS - 5, BEGIN_MS)),
    ((900, 0), (900, 3), (950, 0), (999, 1)),
)


def ignored(metadata: str, position: int = 1000, topic: int = TOPIC) -> str:
    found = decode(metadata, position, topic)
    assert isinstance(found, Ignored), found
    return found.reason


stream_times = st.integers(0, 2**47)
clocks = st.integers(FIRST_EVENT_MS, LAST_EVENT_MS)
states = st.builds(
    BlockState,
    now=stream_times,
    clock=st.none() | clocks,
    behind=st.integers(0, MAX_BEHIND - 1),
    left=st.none() | st.tuples(clocks, stream_times),
    medians=st.lists(clocks, max_size=MAX_MEDIANS).map(tuple),
    offset=st.just(0),
)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    origin = draw(st.integers(0, 100) | st.integers(0, 2**62))
    behind = draw(st.integers(0, 100) | st.integers(0, 20_000_000))
    places = st.tuples(
        st.integers(origin, origin + behind - 1) if behind else st.nothing(),
        st.just(0) | st.integers(0, 3) | st.integers(0, 100_000),
    )
    listed = draw(st.lists(places, max_size=40)) if behind else []
    return Checkpoint(
        origin + behind,
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(0, 2**32 - 1)),
        replace(draw(states), offset=origin),
        tuple(sorted(set(listed))),
    )


@settings(deadline=None, max_examples=300)
@given(checkpoint=checkpoints())
@example(checkpoint=Checkpoint(0, 0, 0, BlockState(0)))
@example(checkpoint=Checkpoint(2**63 - 1, 2**32 - 1, 2**32 - 1, BlockState(2**63 - 2, 0, 0)))
def test_any_checkpoint_comes_back_as_it_was(checkpoint: Checkpoint) -> None:
    metadata = encode(checkpoint)
    assert metadata.isascii()
    assert metadata.isprintable()
    assert decode(metadata, checkpoint.position, checkpoint.topic) == checkpoint


# Size

EXTREMES = BlockState(
    0,
    2**47,
    LAST_EVENT_MS,
    MAX_BEHIND - 1,
    (LAST_EVENT_MS, 2**47),
    (FIRST_EVENT_MS, LAST_EVENT_MS) * (MAX_MEDIANS // 2),
)


def filled(random: Random, max_reread: int, spread: str) -> Checkpoint:
    """List as many open requests as the bound admits, some of them inside messages."""
    room, bits = open_budget(max_reread)
    position = 2**63 - 1
    start = position - max_reread - 62
    places: set[EventPlace] = set()
    used = 0
    while True:
        index = random.choice((0, 0, 0, 1, 7, 100_000)) if spread == "indexes" else 0
        if spread == "both ends":
            offset = random.choice((start, position - 4000)) + random.randrange(4000)
        elif spread == "newest":
            offset = position - 1 - random.randrange(min(4000, max_reread))
        else:
            offset = start + random.randrange(max_reread + 62)
        used += bits + place_bits(index)
        if used > room:
            break
        places.add((offset, index))
    state = replace(EXTREMES, offset=start)
    return Checkpoint(position, 2**32 - 1, 2**32 - 1, state, tuple(sorted(places)))


@pytest.mark.parametrize("max_reread", [10_000, 300_000, 2_000_000, 20_000_000])
@pytest.mark.parametrize("spread", ["even", "both ends", "newest", "indexes"])
def test_as_many_open_requests_as_the_bound_admits_always_fit(max_reread: int, spread: str) -> None:
    for seed in range(3):
        checkpoint = filled(Random(seed), max_reread, spread)
        metadata = encode(checkpoint)
        assert len(metadata) <= MAX_METADATA
        assert decode(metadata, checkpoint.position, checkpoint.topic) == checkpoint


def test_the_bound_is_about_as_wide_as_planned() -> None:
    room, bits = open_budget(2_000_000)
    assert 1_700 < room // (bits + place_bits(0)) < 1_900


def test_indexes_inside_one_message_are_encoded_by_their_distances() -> None:
    places = tuple((5, index) for index in range(1000))
    checkpoint = Checkpoint(6, TOPIC, SETTINGS, BlockState(0), places)
    assert len(encode(checkpoint)) < 500


# Metadata of other software, or of another position


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ("", "no metadata"),
        ("consumer-1", "foreign metadata"),
        ("a", "foreign metadata"),
        ("a1", "foreign metadata"),
        ("a1.", "foreign metadata"),
        ("b1.AAAA", "foreign metadata"),
        ("a.AAAA", "foreign metadata"),
        ("a1x.AAAA", "foreign metadata"),
        ("a\u0661.AAAA", "foreign metadata"),
        ("a" + "9" * 5000 + ".AAAA", "foreign metadata"),
        ('{"a":1.5}', "foreign metadata"),
        ("a1.A", "damaged metadata"),
        ("a1.AAAA", "damaged metadata"),
        ("a1.\u00e4\u00e4\u00e4\u00e4", "damaged metadata"),
        ("a1.===", "damaged metadata"),
    ],
)
def test_foreign_metadata_is_ignored_with_its_reason(metadata: str, reason: str) -> None:
    assert ignored(metadata) == reason


def test_metadata_beside_another_offset_or_topic_is_ignored() -> None:
    """Mirroring tools copy old metadata beside new offsets; a topic may be recreated."""
    metadata = encode(CHECKPOINT)
    assert ignored(metadata, position=999) == "metadata of another offset"
    assert ignored(metadata, topic=TOPIC ^ 1) == "metadata of another topic"


@pytest.mark.parametrize(
    ("metadata", "clock", "places"),
    [
        ("a1.AQB9IAAAAHqEVaMCcBpAAAAAADNu21UAQAAAAAAZt22qgHKUkD4vCvj3", BEGIN_MS, CHECKPOINT.open),
        ("a1.IA-kAAAAD1CKtGBOA09hNw", None, ()),
    ],
)
def test_metadata_of_version_1_says_what_is_open_and_where_the_clock_stands(
    metadata: str, clock: int | None, places: tuple[EventPlace, ...]
) -> None:
    found = decode(metadata, 1000, TOPIC)
    assert found == Checkpoint(1000, TOPIC, 77, BlockState(896, clock=clock), places)


@pytest.mark.parametrize("version", ["3", "10", "9999"])
def test_metadata_of_a_newer_version_is_not_guessed_at(version: str) -> None:
    with pytest.raises(NewerCheckpointError):
        decode(f"a{version}.anything", 1000, TOPIC)


def test_damage_anywhere_is_noticed() -> None:
    metadata = encode(CHECKPOINT)
    for at in range(3, len(metadata)):
        other = "A" if metadata[at] != "A" else "B"
        found = decode(metadata[:at] + other + metadata[at + 1 :], 1000, TOPIC)
        # The last character of base64 may hold bits that mean nothing.
        assert isinstance(found, Ignored) or (found == CHECKPOINT and at == len(metadata) - 1)
        assert isinstance(decode(metadata[:at], 1000, TOPIC), Ignored)


def signed(raw: bytes, version: int) -> str:
    """Return bytes as metadata whose check sum is right."""
    raw += (crc32(raw) & 0xFFFF).to_bytes(2, "big")
    return f"a{version}." + urlsafe_b64encode(raw).rstrip(b"=").decode()


@settings(deadline=None, max_examples=300)
@given(raw=st.binary(max_size=60) | st.binary(max_size=12).map(lambda raw: raw + bytes(40)))
@example(raw=b"")
@example(raw=b"\x01" + bytes(3000))
@example(raw=b"\xff" * 3000)
def test_bytes_with_a_right_check_sum_do_not_make_it_raise(raw: bytes) -> None:
    for version in (1, 2):
        decode(signed(raw, version), 1000, TOPIC)


def bits_of(*numbers: int) -> str:
    digits = [f"{number + 1:b}" for number in numbers]
    return "".join("0" * (len(each) - 1) + each for each in digits)


NO_TIME = (0,) * 7


@pytest.mark.parametrize(
    "bits",
    [
        bits_of(1000, TOPIC, 0, 104, *NO_TIME, 1, 2**200) + "10" + "1" * 40,
        bits_of(1000, TOPIC, 0, 104, *NO_TIME, 10**9, 0) + "01" * 20,
        bits_of(1000, TOPIC, 0, 2000, *NO_TIME, 0),
        bits_of(1000, TOPIC, 0, 10, *NO_TIME, 1, 3) + "0" + "111" + bits_of(0) + "1",
        bits_of(1000, TOPIC, 0, 4, *NO_TIME, 1, 3) + "0" + "111" + bits_of(0),
        bits_of(1000, TOPIC, 0, 104, 0, 0, 0, 0, 0, 10**6, 0) + "1" * 40,
        bits_of(1000, TOPIC, 0, 104, 0, 0, 0, 0, 0, 1, 2**70) + "1" * 40,
    ],
    ids=[
        "huge parameter",
        "huge count",
        "start below zero",
        "bits left over",
        "place ahead",
        "too many medians",
        "huge width",
    ],
)
def test_contents_that_cannot_be_are_damage(bits: str) -> None:
    number = int("1" + bits, 2)
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    assert ignored(signed(raw, 2)) == "damaged metadata"


def test_a_recreated_topic_and_other_settings_have_other_hashes() -> None:
    assert topic_hash("one") != topic_hash("two")
    assert settings_digest(Limits()) != settings_digest(Limits(idle_timeout_ms=1))
