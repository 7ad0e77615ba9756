"""The simulation keeps its promise, is the same for the same seed, and finds what it should."""

from collections.abc import Callable

import pytest

from tests.simulation.mutations import ALL
from tests.simulation.shrink import described, shrink
from tests.simulation.world import World, WrongError, simulated

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


def test_a_broken_world_shrinks_to_a_short_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the list of open requests, a restart in the middle of one stream is enough."""
    with simulated() as make:
        assert shrink(make, 0) is None
        ALL["the_list_of_open_requests_is_left_out"](monkeypatch)
        seed = next(seed for seed in range(_MAX_SEEDS) if _is_broken(make, seed))
        before = sum(map(len, make(seed).plans))
        found = shrink(make, seed)
    assert found is not None
    assert sum(map(len, found.plans)) < min(30, before / 3)
    assert found.error in described(found)


def _is_broken(make: Callable[[int], World], seed: int) -> bool:
    try:
        make(seed).run()
    except WrongError:
        return True
    return False


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
