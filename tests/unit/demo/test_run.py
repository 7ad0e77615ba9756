import pytest

from consumer.demo.run import run_demo


@pytest.mark.parametrize("duration", [0, -1, float("nan")])
def test_a_duration_that_is_none_is_refused(duration: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        run_demo(duration=duration)
