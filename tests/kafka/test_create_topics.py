"""`create-topics` on a real Kafka."""

import subprocess
from uuid import uuid4

import pytest

from tests.kafka.harness import SECONDS, Bench

pytestmark = pytest.mark.kafka


def create(bench: Bench, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return bench.run_command("create-topics", *options, **settings)


def partitions(bench: Bench, topic: str) -> int:
    return len(bench.admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions)


def test_a_missing_topic_is_created_and_an_existing_one_is_not_changed(bench: Bench) -> None:
    records = f"new-{uuid4()}"
    done = create(bench, "--partitions", "7", output_topic=records)
    assert (done.returncode, done.stdout) == (0, f"created {records}\n"), done.stderr
    assert partitions(bench, records) == 7
    assert partitions(bench, bench.dead) == 3
    again = create(bench, "--partitions", "9", output_topic=records)
    assert (again.returncode, again.stdout) == (0, "all topics exist\n")
    assert partitions(bench, records) == 7


def test_the_dead_letter_topic_gets_one_partition(bench: Bench) -> None:
    dead = f"new-{uuid4()}"
    assert create(bench, dead_letter_topic=dead).returncode == 0
    assert partitions(bench, dead) == 1


def test_a_topic_that_cannot_be_created_is_named(bench: Bench) -> None:
    name = f"new-{uuid4()}"
    refused = create(bench, "--replication-factor", "99", output_topic=name)
    assert refused.returncode == 2
    assert f"output_topic: topic '{name}' cannot be created" in refused.stderr
    assert "replication" in refused.stderr.lower()
