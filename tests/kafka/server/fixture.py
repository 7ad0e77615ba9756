"""The broker that all tests of one run share."""

import os
from collections.abc import Iterator
from typing import NoReturn

import pytest

from .cluster import KafkaCluster, KafkaUnavailable


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """Skip where Kafka cannot run, unless ACCEPTANCE_REQUIRE_KAFKA forbids it."""
    cluster = KafkaCluster()
    if reason := _why_it_cannot_start(cluster):
        _refuse(reason)
    yield cluster
    cluster.stop()


def _why_it_cannot_start(cluster: KafkaCluster) -> str | None:
    try:
        cluster.start()
    except KafkaUnavailable as error:
        return error.reason
    return None


def _refuse(reason: str) -> NoReturn:
    message = f"NOTHING WAS TESTED AGAINST A REAL KAFKA: {reason}"
    if os.environ.get("ACCEPTANCE_REQUIRE_KAFKA") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
