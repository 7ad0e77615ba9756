import io
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from consumer.demo import run
from consumer.demo.service import DemoService


@pytest.mark.parametrize("duration", [0, -1, float("nan")])
def test_a_duration_that_is_not_positive_is_refused(duration: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        run.run_demo(duration=duration)


def test_a_service_that_fails_ends_the_demo_with_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "import sys; print('the last words'); sys.exit(3)"
    failing = partial(DemoService, command=(sys.executable, "-c", code))
    monkeypatch.setattr(run, "DemoService", failing)
    output = io.StringIO()

    assert run.run_demo(stdout=output) == 1
    [log] = tmp_path.iterdir()
    assert f"The service ended with exit code 3. Its log: {log}\n" in output.getvalue()
    assert output.getvalue().endswith("  the last words\n")
