"""A third party's adapter, installed beside the service, publishes through the real service."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.harness import Bench
from tests.paths import ROOT

pytestmark = pytest.mark.kafka

_PLUGIN = ROOT / "tests" / "unit" / "core" / "adapters" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the plugin as a user would, offline and into a directory of its own."""
    source = tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(_PLUGIN, source, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
            *("--no-index", "--no-deps", "--no-build-isolation", "--target", target, source),
        ],
        check=True,
    )
    return target


def test_the_record_of_a_third_partys_engine_comes_out(bench: Bench, installed: Path) -> None:
    path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")]))
    bench.variables["PYTHONPATH"] = path
    service = bench.start()
    body = {
        "id": "chatcmpl-x",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12},
        "x_engine": {"draft_report": {"rounds": 4, "drafts_kept": 6, "drafts_tried": 12}},
    }
    bench.send(json.dumps({"request_id": "x", "body": body}).encode(), "x")
    bench.flush()
    record = bench.record_of("x").json
    assert record == record | {
        "engine": "x_engine",
        "num_spec_steps": 4,
        "num_accepted_draft_tokens": 6,
        "num_draft_tokens": 12,
        "mean_acceptance_length": 2.5,
        "completion_tokens": 9,
    }
    assert service.stop() == 0


def test_without_the_plugin_its_numbers_are_nobodys(bench: Bench) -> None:
    service = bench.start()
    body = {
        "id": "chatcmpl-x",
        "object": "chat.completion",
        "choices": [],
        "x_engine": {"draft_report": {"rounds": 4}},
    }
    bench.send(json.dumps({"request_id": "x", "body": body}).encode(), "x")
    bench.read_up()
    assert service.stop() == 0
    totals = service.totals()
    assert totals["request no_stats(absent)"] == 1


def test_a_plugin_that_does_not_load_is_refused_by_name(bench: Bench, tmp_path: Path) -> None:
    """A service that left it out would count its engine's requests as without numbers."""
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[spec_decode_adapter]\nbroken = not_there:Adapter\n")
    bench.variables["PYTHONPATH"] = str(tmp_path)
    service = bench.start()
    assert service.wait() == 2
    [line] = service.lines()
    assert line["event"] == "start_failed"
    assert "adapter 'broken' (not_there:Adapter)" in line["error"]
