"""The image, as far as tests can check it without a container engine.

The tests parse the Dockerfile and run its build stage in a directory, with a fresh virtual
environment instead of the Python of the base image.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from consumer.demo.embedded_broker import EmbeddedBroker
from tests.paths import ROOT

pytestmark = [pytest.mark.chart, pytest.mark.timeout(600)]

DOCKERFILE = ROOT / "Dockerfile"
BIN = Path(sys.executable).parent


def stages() -> list[dict[str, list[str]]]:
    """Return the arguments of each instruction of each stage."""
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text())
    found: list[dict[str, list[str]]] = []
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append(defaultdict(list))
        if found and name and name != "#":
            found[-1][name].append(rest)
            found[-1]["*"].append(line)
    return found


BUILD, FINAL = stages()


def test_hadolint_finds_nothing() -> None:
    command = [BIN / "hadolint", DOCKERFILE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_keeps_only_the_environment_of_the_build() -> None:
    assert FINAL["COPY"] == ["--from=build /opt/venv /opt/venv"]
    assert not FINAL["ADD"]
    assert not FINAL["RUN"]


def test_it_runs_as_a_number_that_is_not_root_with_the_version_of_the_service() -> None:
    [user] = FINAL["USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    [version] = (rest for rest in FINAL["ARG"] if rest.startswith("VERSION="))
    project = (ROOT / "pyproject.toml").read_text()
    assert f'\nversion = "{version.removeprefix("VERSION=")}"\n' in project


def test_dockerignore_admits_exactly_the_copied_files() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    admitted = {line[1:] for line in lines if line.startswith("!")}
    assert admitted == {source for rest in BUILD["COPY"] for source in rest.split()[:-1]}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the build stage, and return the virtual environment that it creates."""
    directory = tmp_path_factory.mktemp("image")
    base, build, created = directory / "base", directory / "build", directory / "venv"
    subprocess.run([sys.executable, "-m", "venv", base], check=True)
    build.mkdir()
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    path = {"PATH": f"{base / 'bin'}:/usr/bin:/bin", "HOME": str(directory)}
    for line in BUILD["*"]:
        name, _, rest = line.partition(" ")
        if name == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(ROOT / source, build / target)
        elif name == "RUN":
            done = subprocess.run(
                ["/bin/sh", "-c", rest.replace("/opt/venv", str(created))],
                cwd=build,
                env=path | pip,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(build)
    return created


@pytest.fixture
def variables(environment: Path) -> dict[str, str]:
    """Return the variables of the image."""
    [rest] = FINAL["ENV"]
    pairs = dict(pair.split("=", 1) for pair in rest.split())
    path = pairs["PATH"].replace("/opt/venv", str(environment)).replace("$PATH", "/usr/bin")
    return pairs | {"PATH": path, "HOME": "/nonexistent"}


def test_the_wheel_alone_contains_everything_that_the_command_needs(
    environment: Path, variables: dict[str, str]
) -> None:
    run = str(environment / "bin" / "acceptance-consumer")
    command = [run, "schema", "acceptance-record"]
    done = subprocess.run(command, env=variables, cwd="/", capture_output=True, check=True)
    assert json.loads(done.stdout)["title"]


def test_exactly_the_locked_packages_are_installed_without_pip_and_tests(
    environment: Path,
) -> None:
    packages = environment.glob("lib/*/site-packages/*")
    names = {path.name for path in packages}
    assert {"consumer", "schemas"} <= names
    assert not names & {"pip", "setuptools", "hatchling", "pytest", "tests"}
    installed = {
        match[1].lower().replace("_", "-"): match[2]
        for name in names
        if (match := re.fullmatch(r"(.+)-(.+)\.dist-info", name))
    }
    locked = re.findall(r"(?m)^([\w-]+)==(\S+)$", (ROOT / "requirements.lock").read_text())
    assert installed.pop("acceptance-consumer")
    assert installed == dict(locked)


def test_the_entry_point_writes_no_file_and_ends_on_sigterm(
    environment: Path, variables: dict[str, str]
) -> None:
    # The exec form: a shell would not forward the signal.
    command = [word for name in ("ENTRYPOINT", "CMD") for word in json.loads(FINAL[name][0])]
    before = set(environment.rglob("*"))
    with EmbeddedBroker() as broker:
        broker.create_topics(["in", "acceptance-records", "acceptance-dead-letters"])
        settings = {
            "ACCEPTANCE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "ACCEPTANCE_TOPICS": "in",
            "ACCEPTANCE_DELIVERY": "at_least_once",
            "ACCEPTANCE_LOG_FORMAT": "json",
        }
        with subprocess.Popen(
            [*read_only_root(), environment / "bin" / command[0], *command[1:]],
            env=variables | settings,
            cwd="/",
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                if '"partitions_assigned"' in line:
                    process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0, "".join(lines)
            assert any('"partitions_assigned"' in line for line in lines), "".join(lines)
    assert set(environment.rglob("*")) == before


def read_only_root() -> list[str]:
    """Return the words that make the root file system read-only for a command, if permitted."""
    wrapped = ["unshare", "--mount", "sh", "-c", 'mount -o remount,ro,bind / && exec "$@"', "sh"]
    try:
        tried = subprocess.run([*wrapped, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return wrapped if tried.returncode == 0 else []


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
