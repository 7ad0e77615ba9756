"""What decides whether the tests of the chart can run here."""

import os

import pytest

from tests.chart.binaries import RELEASES, HelmUnavailable, binary


@pytest.fixture(scope="session", autouse=True)
def helm_is_there() -> None:
    """Skip where Helm cannot be had, but not where somebody relies on these tests."""
    try:
        for major in RELEASES:
            binary(major)
    except HelmUnavailable as error:
        message = f"THE CHART WAS NOT TESTED: {error}"
        if os.environ.get("ACCEPTANCE_REQUIRE_HELM") == "1":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
