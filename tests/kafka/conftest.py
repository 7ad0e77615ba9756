"""Fixtures of the tests on a real Kafka."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.harness import Bench, benches
from tests.kafka.server.cluster import KafkaCluster


@pytest.fixture
def make_bench(kafka: KafkaCluster, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    yield from benches(kafka, tmp_path)


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
