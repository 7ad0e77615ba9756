"""`python -m tests.fuzz --minutes 2`: look for values that break what must hold for any.

The time is divided among the targets; the opening of any envelope gets half of it. The exit code is
1 if a value breaks a check; it lies in `.cache/fuzz/found`, and belongs into `findings` with the
change that mends it. What was learned stays in `.cache/fuzz` for the next run.
"""

import argparse
import subprocess
import sys
import time
from typing import Final

from tests.fuzz import corpus
from tests.fuzz.oracles import MAX_BYTES, TARGETS
from tests.paths import ROOT

_FOLDER: Final = ROOT / ".cache" / "fuzz"
_FOUND: Final = _FOLDER / "found"
_MAX_VALUE_S: Final = 10
_MAX_MIB: Final = 2048


def _fuzz(name: str, seconds: float) -> int:
    """Fuzz one target, which ends at each value that breaks a check; return how many did."""
    broken, end = 0, time.monotonic() + seconds
    while (left := int(end - time.monotonic())) > 0:
        with (_FOLDER / f"{name}.log").open("ab") as log:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "tests.fuzz.run_target", name, _FOLDER / name),
                    f"-max_total_time={left}",
                    f"-max_len={MAX_BYTES}",
                    f"-timeout={_MAX_VALUE_S}",
                    f"-rss_limit_mb={_MAX_MIB}",
                    f"-dict={_FOLDER / 'words.dict'}",
                    f"-artifact_prefix={_FOUND}/{name}-",
                    "-print_final_stats=1",
                ],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                check=False,
            )
        broken += done.returncode != 0
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--only", choices=TARGETS, help="the one target to fuzz")
    options = parser.parse_args()
    _FOUND.mkdir(parents=True, exist_ok=True)
    corpus.write(_FOLDER)
    targets = [options.only] if options.only else list(TARGETS)
    share = options.minutes * 60 / (2 * len(targets) - 2 or 1)
    broken = 0
    for name in targets:
        seconds = share * (len(targets) - 1 or 1) if name == corpus.AUTO else share
        found = _fuzz(name, seconds)
        print(f"{name}: {seconds:.0f} s, {found} values break a check", flush=True)
        broken += found
    if broken:
        print(f"see {_FOUND.relative_to(ROOT)}, and the logs beside it")
    return 1 if broken else 0


sys.exit(main())
