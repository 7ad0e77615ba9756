"""The beginning of the process, before the command line is there."""

import subprocess
import sys

import pytest

_INTERRUPTED = """
import sys
from consumer.__main__ import main

interrupted = sys.argv.pop(1)

class Interrupting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == interrupted:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting)
main()
"""
_SIGNALLED = """
import os, signal, sys, types
from consumer.__main__ import main

def command():
    os.kill(os.getpid(), signal.SIGUSR1)
    print(signal.sigwait({signal.SIGUSR1}).name)

sys.modules["consumer.commands.cli"] = types.SimpleNamespace(main=command)
main()
"""


def _run(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *args],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    "args", [["consumer.commands.cli"], ["consumer.commands.schema", "schema", "acceptance-record"]]
)
def test_ctrl_c_during_the_imports_shows_no_traceback(args: list[str]) -> None:
    done = _run(_INTERRUPTED, *args)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_sigusr1_during_the_imports_is_kept() -> None:
    done = _run(_SIGNALLED)
    assert (done.returncode, done.stdout) == (0, "SIGUSR1\n"), done.stderr
