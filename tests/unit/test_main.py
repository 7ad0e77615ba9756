"""The beginning of the process, before the command line is there."""

import subprocess
import sys

_INTERRUPTED = """
import sys
from consumer.__main__ import main

class Interrupting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "consumer.commands.cli":
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


def _run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )


def test_ctrl_c_while_it_is_imported_shows_no_traceback() -> None:
    done = _run(_INTERRUPTED)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_sigusr1_before_anybody_waits_for_it_is_kept() -> None:
    done = _run(_SIGNALLED)
    assert (done.returncode, done.stdout) == (0, "SIGUSR1\n"), done.stderr
