"""Where the tests find what they read."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
SAMPLES: Final = ROOT / "tests" / "samples"
