"""A third party adds an engine by installing a package, without touching this code."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.core.made import ADAPTERS

PLUGIN = Path(__file__).parent / "plugin"

# Runs where the plugin is installed: which adapters there are, and what they make of a response.
SCRIPT = """
import json, sys
import msgspec
from consumer.core.adapters.registry import judge, load_adapters, places_of
from schemas import ParsedResponse, Usage

adapters = load_adapters()
stats = {"x_engine.draft_report": sys.argv[1].encode()}
judgement = judge(adapters, ParsedResponse(stats=stats, usage=Usage(completion_tokens=9)))
print(json.dumps({
    "engines": [adapter.engine for adapter in adapters],
    "places": places_of(adapters),
    "judgement": msgspec.to_builtins(judgement),
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the plugin as a user would, offline and into a directory of its own."""
    source = tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(PLUGIN, source, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
            *("--no-index", "--no-deps", "--no-build-isolation", "--target", target, source),
        ],
        check=True,
    )
    return target


@pytest.fixture
def run(installed: Path) -> Callable[[str], dict[str, Any]]:
    def run(report: str) -> dict[str, Any]:
        path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")]))
        finished = subprocess.run(
            [sys.executable, "-c", SCRIPT, report],
            env=os.environ | {"PYTHONPATH": path},
            check=True,
            capture_output=True,
            text=True,
        )
        answer: dict[str, Any] = json.loads(finished.stdout)
        return answer

    return run


def test_an_installed_plugin_is_found_and_its_record_published(
    run: Callable[[str], dict[str, Any]],
) -> None:
    answer = run('{"rounds": 4, "drafts_kept": 6, "drafts_tried": 12, "future": []}')
    assert answer["engines"] == [*(adapter.engine for adapter in ADAPTERS), "x_engine"]
    assert "x_engine.draft_report" in answer["places"]
    judgement = answer["judgement"]
    assert judgement["outcome"] == "published"
    assert judgement["claims"] == ["x_engine"]
    assert judgement["failures"] == []
    known = {name: value for name, value in judgement["record"].items() if value is not None}
    assert known == {
        "engine": "x_engine",
        "mean_acceptance_length": 2.5,
        "draft_acceptance_rate": 0.5,
        "num_accepted_draft_tokens": 6,
        "num_draft_tokens": 12,
        "num_spec_steps": 4,
        "completion_tokens": 9,
        "draft_tokens_measured": True,
    }


def test_the_identities_hold_for_the_records_of_a_plugin_too(
    run: Callable[[str], dict[str, Any]],
) -> None:
    judgement = run('{"rounds": 4, "drafts_kept": 6, "drafts_tried": 5}')["judgement"]
    assert judgement["outcome"] == "malformed_stats"
    assert judgement["reason"] == "accepted_exceeds_drafted"
    assert judgement["record"] is None
