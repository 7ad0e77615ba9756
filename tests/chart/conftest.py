"""Decide whether the chart tests can run on this machine."""

import os

import pytest

from tests.chart.binaries import RELEASES, HelmUnavailable, binary


@pytest.fixture(scope="session", autouse=True)
def helm_is_there() -> None:
    """Without Helm, skip the tests, or fail if ACCEPTANCE_REQUIRE_HELM is 1."""
    try:
        for major in RELEASES:
            binary(major)
    except HelmUnavailable as error:
        message = f"THE CHART WAS NOT TESTED: {error}"
        if os.environ.get("ACCEPTANCE_REQUIRE_HELM") == "1":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
