"""Sequences seen, against a plain set as the truth."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from consumer.core.reassembly.sequences import SeenSequences


@settings(deadline=None, max_examples=300)
@given(sequences=st.lists(st.integers(0, 40) | st.integers(0, 2**63 - 1), max_size=60))
@example(sequences=[2, 0, 1, 0, 2])
@example(sequences=[5, 3, 4, 1, 2, 0])
def test_the_seen_sequences_are_those_of_a_set(sequences: list[int]) -> None:
    seen, truth = SeenSequences(), set[int]()
    for sequence in sequences:
        assert seen.has(sequence) == (sequence in truth)
        assert seen.add(sequence) == (sequence not in truth)
        truth.add(sequence)
        assert seen.has(sequence)
        below = next(n for n in range(len(truth) + 1) if n not in truth)
        assert seen.next == below
        assert seen.has_gap == (max(truth) >= below)


@settings(deadline=None, max_examples=200)
@given(come=st.sets(st.integers(0, 12), min_size=1), more=st.integers(0, 9))
def test_reaching_further_is_adding_one_after_the_other(come: set[int], more: int) -> None:
    seen, other = SeenSequences(), SeenSequences()
    for sequence in come:
        seen.add(sequence)
        other.add(sequence)
    top = seen.top
    assert top == (None if seen.in_order else max(come) + 1)
    if top is not None:
        seen.reach(top + more)
        for sequence in range(top, top + more):
            other.add(sequence)
        assert [seen.has(n) for n in range(30)] == [other.has(n) for n in range(30)]
        assert (seen.next, seen.top) == (other.next, other.top)
        seen.mark_end(None)
        assert seen.top is None


@settings(deadline=None, max_examples=200)
@given(order=st.permutations(range(12)), end_at=st.integers(0, 11), named=st.booleans())
def test_it_is_complete_when_all_up_to_the_end_have_come(
    order: list[int], end_at: int, named: bool
) -> None:
    seen = SeenSequences()
    for number, sequence in enumerate(order):
        seen.add(sequence)
        if number == end_at:
            seen.mark_end(sequence if named else None)
            last = sequence if named else max(order[: number + 1])
        if number >= end_at:
            assert seen.end == last + 1
            assert seen.complete == set(range(last + 1)).issubset(order[: number + 1])
        else:
            assert not seen.complete


def test_the_earliest_of_several_ends_counts() -> None:
    seen = SeenSequences()
    for sequence in (0, 1, 2):
        seen.add(sequence)
    seen.mark_end(2)
    seen.mark_end(1)
    seen.mark_end(7)
    assert seen.end == 2


def test_an_end_beyond_what_has_come_is_a_gap() -> None:
    seen = SeenSequences()
    seen.add(0)
    assert not seen.has_gap
    seen.mark_end(3)
    assert seen.has_gap
    assert not seen.complete


def test_more_gaps_than_disorder_makes_are_loss_and_held_within_bounds() -> None:
    """A producer that sends every other sequence must not grow memory without end."""
    seen = SeenSequences()
    for sequence in range(2, 200_000, 2):
        seen.add(sequence)
    assert seen.lost
    assert seen.has_gap
    assert len(seen._ahead or ()) <= 64
    seen.mark_end(200_000)
    for sequence in range(200):
        seen.add(sequence)
    assert not seen.complete
