"""Tests of commands see neither the settings nor the folder of the person who runs them."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_settings_and_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("ACCEPTANCE_", "KAFKA_", "PYTHON")) or name == "FORCE_COLOR":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
