"""Fuzzes one target, guided by the branches that its values reach; ends with the process.

`python -m tests.fuzz.run_target NAME` and options of libFuzzer.
"""

import sys

import atheris

with atheris.instrument_imports(include=["consumer"]):
    from tests.fuzz.mutations import mutated
    from tests.fuzz.oracles import TARGETS


def _mutator(value: bytes, max_size: int, seed: int) -> bytes:
    changed = mutated(value, seed) if seed % 2 else None
    if changed is None or len(changed) > max_size:
        return bytes(atheris.Mutate(value, max_size))
    return changed


def main() -> None:
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name], custom_mutator=_mutator)
    atheris.Fuzz()


main()
