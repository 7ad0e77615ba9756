"""The exit codes of all commands."""

from typing import Final

SUCCESS: Final = 0
"""The command did its work, or a signal ended it."""

FAILED: Final = 1
"""The cluster failed, or part of the work could not be done."""

REFUSED: Final = 2
"""The operator must change what the command was given."""
