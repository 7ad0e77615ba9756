"""The simulation keeps its promise, is the same for the same seed, and finds what it should."""

import pytest

from tests.simulation.mutations import ALL
from tests.simulation.world import WrongError, simulated

_SEEDS = range(100)
_MAX_SEEDS = 2_000


def test_what_a_subscriber_reads_is_what_one_undisturbed_pass_gives() -> None:
    """A few worlds for a quick answer; `make simulate` runs thousands."""
    with simulated() as make:
        for seed in _SEEDS:
            make(seed).run()


def test_a_seed_gives_the_same_world_every_time() -> None:
    worlds = []
    with simulated() as make:
        for _ in range(2):
            world = make(7)
            world.run()
            worlds.append((world.hazards, world.clock.monotonic()))
    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("name", ALL)
def test_each_part_of_the_rule_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it some world ends with records that are missing, or there twice."""
    with simulated() as make:
        ALL[name](monkeypatch)
        for seed in range(_MAX_SEEDS):
            try:
                make(seed).run()
            except WrongError:
                return
    pytest.fail(f"{_MAX_SEEDS} worlds passed without it")
