"""The instructions that an event costs in the core: `python -m tests.bench.instructions [CASE...]`.

The cases are those of `test_cost.py`. `perf` counts where the machine permits it, else valgrind,
which takes about a minute for each case. Both vary by a fraction of a percent from run to run, even
on a busy machine. The result is the difference between one pass over the events and four, so the
start of Python does not count.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.bench.core import TOPIC, messages, read
from tests.bench.runs import described
from tests.bench.test_cost import CASES
from tests.unit.core.made import pipeline

_FEW: Final = 1
_MANY: Final = 4
_PERF: Final = ("perf", "stat", "-x,", "-e", "instructions:u")
_VALGRIND: Final = ("valgrind", "--tool=cachegrind", "--cache-sim=no")
_COUNTS: Final = re.compile(r"^(\d+),,instructions|I\s+refs:\s+([\d,]+)", re.MULTILINE)
_WORKER: Final = "worker"


def main(names: list[str]) -> None:
    counter = _counter()
    print(f"{described()}; counted by {counter[0]}")
    for name in names or CASES:
        events = len(CASES[name][0]())
        few, many = (_count(counter, name, passes) for passes in (_FEW, _MANY))
        print(f"{name:24} {(many - few) / (_MANY - _FEW) / events:>12,.0f} per event", flush=True)


def _counter() -> tuple[str, ...]:
    """Return the command that counts on this machine."""
    for command in (_PERF, _VALGRIND):
        if shutil.which(command[0]) and _COUNTS.search(_run([*command, "true"])):
            return command
    raise SystemExit("cannot count instructions: install valgrind, or permit perf")


def _count(counter: tuple[str, ...], name: str, passes: int) -> int:
    python = (sys.executable, "-m", __spec__.name, _WORKER, name, str(passes))
    output = _run([*counter, *python])
    found = _COUNTS.search(output)
    if found is None:
        raise RuntimeError(output)
    return int((found[1] or found[2]).replace(",", ""))


def _run(command: list[str]) -> str:
    with tempfile.TemporaryDirectory() as directory:  # Valgrind leaves a file.
        return subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(Path.cwd())},
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        ).stderr


def _work(name: str, passes: int) -> None:
    core, log = pipeline(), list(messages(CASES[name][0]()))
    for _ in range(passes):
        read(core.partition(TOPIC, 0, 0), log)


if __name__ == "__main__":
    if sys.argv[1:2] == [_WORKER]:
        _work(sys.argv[2], int(sys.argv[3]))
    else:
        main(sys.argv[1:])
