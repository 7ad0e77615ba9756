"""Run the simulation: `make simulate SEEDS=10000 FIRST=0`.

Prints how often each hazard occurred, and fails if one never did or if a promise was broken.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.world import HAZARDS, simulated

_CHUNK = 50
_ENOUGH = 2_000  # Seeds, in which every hazard occurs.

Broken = list[tuple[int, str]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    began = time.perf_counter()
    occurred: Counter[str] = Counter()
    broken: Broken = []
    last = options.first + options.seeds
    chunks = [range(n, min(n + _CHUNK, last)) for n in range(options.first, last, _CHUNK)]
    with ProcessPoolExecutor(options.jobs) as pool:
        for hazards, wrong in pool.map(run, chunks):
            occurred += hazards
            broken += wrong
    print("   times hazard")
    for hazard in sorted({*occurred, *HAZARDS}):
        print(f"{occurred[hazard]:9,} {hazard}")
    never = [hazard for hazard in HAZARDS if not occurred[hazard]]
    if never and options.seeds >= _ENOUGH:
        print("NEVER OCCURRED:", *never, sep="\n  ")
    for seed, error in broken[:20]:
        print(f"BROKEN: seed {seed} (make shrink SEED={seed}): {error}")
    seconds = time.perf_counter() - began
    print(f"{options.seeds:,} seeds, {len(broken):,} broken, {seconds:.0f} s")
    return bool(broken or (never and options.seeds >= _ENOUGH))


def run(seeds: Iterable[int]) -> tuple[Counter[str], Broken]:
    """Run worlds; return how often each hazard occurred, and which promises were broken."""
    occurred: Counter[str] = Counter()
    broken: Broken = []
    with simulated() as make:
        for seed in seeds:
            world = make(seed)
            try:
                world.run()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the seed's result.
                broken.append((seed, f"{type(error).__name__}: {error}"))
            occurred += world.hazards
    return occurred, broken


if __name__ == "__main__":
    sys.exit(main())
