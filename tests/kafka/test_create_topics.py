"""`create-topics` on a real Kafka."""

import subprocess
import sys
from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.kafka.harness import SECONDS, Bench
from tests.paths import ROOT

pytestmark = pytest.mark.kafka


@pytest.fixture
def create(bench: Bench) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*options: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "consumer", "create-topics", *options],
            env=bench.environment(**settings),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    return run


def partitions(bench: Bench, topic: str) -> int:
    return len(bench.admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions)


def test_what_is_missing_is_created_and_what_exists_stays(
    bench: Bench, create: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    records = f"new-{uuid4()}"
    done = create("--partitions", "7", output_topic=records)
    assert (done.returncode, done.stdout) == (0, f"created {records}\n"), done.stderr
    assert partitions(bench, records) == 7
    assert partitions(bench, bench.dead) == 3
    again = create("--partitions", "9", output_topic=records)
    assert (again.returncode, again.stdout) == (0, "all topics exist\n")
    assert partitions(bench, records) == 7


def test_a_topic_of_dead_letters_gets_one_partition(
    bench: Bench, create: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    dead = f"new-{uuid4()}"
    assert create(dead_letter_topic=dead).returncode == 0
    assert partitions(bench, dead) == 1


def test_what_cannot_be_created_is_named(
    create: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    name = f"new-{uuid4()}"
    refused = create("--replication-factor", "99", output_topic=name)
    assert refused.returncode == 2
    assert f"output_topic: topic '{name}' cannot be created" in refused.stderr
    assert "replication" in refused.stderr.lower()
