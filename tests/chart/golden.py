"""The expected rendering of the chart for each of its values files.

`python -m tests.chart.golden` rewrites them; review the difference before you commit it.
"""

import tempfile
from pathlib import Path
from typing import Final

from tests.chart.chart import CASES, template, with_fixtures

DIRECTORY: Final = Path(__file__).parent / "golden"


def path(case: str) -> Path:
    """Return where the render of a values file is kept."""
    return DIRECTORY / f"{case}.yaml"


def main() -> None:
    """Write all of them."""
    with tempfile.TemporaryDirectory() as directory:
        chart = with_fixtures(Path(directory))
        for case, values in CASES.items():
            path(case).write_text(template("--values", values, chart=chart), encoding="utf-8")


if __name__ == "__main__":
    main()
