"""What `make fuzz` checks of any value, on all samples and on the values that once broke it."""

from pathlib import Path

import pytest

from tests.fuzz import corpus
from tests.fuzz.mutations import mutated
from tests.fuzz.oracles import TARGETS, recognised


@pytest.mark.parametrize("path", corpus.findings(), ids=lambda path: path.name)
def test_a_value_that_broke_a_check_holds(path: Path) -> None:
    for check in TARGETS.values():
        check(path.read_bytes())


def test_all_samples_hold_in_any_envelope_and_in_their_own() -> None:
    for value in corpus.values():
        for name in {corpus.AUTO, recognised(value)} & TARGETS.keys():
            TARGETS[name](value)


def test_samples_with_a_member_that_is_another_one_hold() -> None:
    for seed, value in enumerate(corpus.values()):
        changed = mutated(value, seed)
        if changed is not None:
            TARGETS[corpus.AUTO](changed)
