"""The permissions that helm/README.md lists suffice for the service and for redriving."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.kafka.harness import Bench, benches, eventually, request_ids
from tests.kafka.server.cluster import KafkaCluster
from tests.paths import ROOT

# The shared cluster is not used, but knows whether there can be one.
pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka")]

_DOCUMENT: Final = ROOT / "helm" / "README.md"
_USER: Final = "acceptance"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Bench]:
    """Yield a bench whose services run as a user without permissions."""
    with KafkaCluster(user=_USER) as cluster:
        for bench in benches(cluster, tmp_path):
            made = bench()
            made.variables |= {
                "ACCEPTANCE_BOOTSTRAP_SERVERS": cluster.guarded_servers,
                "ACCEPTANCE_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
                "ACCEPTANCE_KAFKA_SASL_MECHANISM": "PLAIN",
                "ACCEPTANCE_KAFKA_SASL_USERNAME": _USER,
                "ACCEPTANCE_KAFKA_SASL_PASSWORD": _USER,
            }
            yield made


def _allow(bench: Bench, *options: str) -> None:
    done = bench.kafka.console(
        "org.apache.kafka.tools.AclCommand",
        *("--bootstrap-server", bench.bootstrap, "--add", "--allow-principal", f"User:{_USER}"),
        *options,
    )
    assert done.returncode == 0, done.stdout


def _documented(bench: Bench) -> Iterator[list[str]]:
    """Return the options of each command of the document, for this test's names."""
    names = {
        "serving-responses": bench.input,
        "acceptance-records": bench.output,
        "acceptance-dead-letters": bench.dead,
        "acceptance-consumer": bench.group,
    }
    for options in re.findall(r"^ *\$allow (.*)$", _DOCUMENT.read_text(), re.MULTILINE):
        yield [names.get(option, option) for option in shlex.split(options)]


def test_the_documented_rights_suffice(guarded: Bench) -> None:
    for options in _documented(guarded):
        _allow(guarded, *options)
    guarded.send_whole("skipped", partition=0)
    service = guarded.start(skip=f"{guarded.input}:0:0")
    eventually(guarded.letters, "a dead letter")
    guarded.send_whole("read")
    assert request_ids(guarded.read_up()) == ["read"]

    refused = guarded.run_command("dead-letters", "--redrive", "--yes")
    assert "authorization failed" in refused.stderr
    _allow(guarded, "--operation", "Read", "--topic", guarded.dead)
    _allow(guarded, "--operation", "Write", "--topic", guarded.input)
    redriven = guarded.run_command("dead-letters", "--redrive", "--yes")
    assert "1 redriven, 0 failed" in redriven.stderr + redriven.stdout
    assert sorted(request_ids(guarded.read_up())) == ["read", "skipped"]
    assert service.stop() == 0
