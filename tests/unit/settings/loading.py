"""Loads settings in tests, with the required ones given."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from consumer.settings.settings import Settings
from consumer.settings.sources import SettingsError, load

REQUIRED = {"bootstrap_servers": "kafka:9092", "topics": ("responses",)}


def given(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    return load({**REQUIRED, **(flags or {})}, environ or {}, file)


def refused(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> str:
    with pytest.raises(SettingsError) as caught:
        given(flags, environ, file)
    return str(caught.value)
