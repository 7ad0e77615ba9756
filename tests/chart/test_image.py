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
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer.demo.embedded_broker import EmbeddedBroker
from tests.paths import ROOT

pytestmark = [pytest.mark.chart, pytest.mark.timeout(600)]

DOCKERFILE = ROOT / "Dockerfile"
BIN = Path(sys.executable).parent


def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage, from its FROM on."""
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text())
    found: list[list[tuple[str, str]]] = []
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        if found and name and name != "#":
            found[-1].append((name, rest))
    return found


BUILD, FINAL = stages()


def test_hadolint_finds_nothing() -> None:
    done = subprocess.run(
        [BIN / "hadolint", DOCKERFILE], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_nothing_of_the_build_is_left_but_the_environment() -> None:
    copied = [rest for name, rest in FINAL if name in ("COPY", "ADD")]
    assert copied == ["--from=build /opt/venv /opt/venv"]
    assert not [rest for name, rest in FINAL if name == "RUN"]


def test_it_runs_as_a_number_that_is_not_root() -> None:
    [user] = (rest for name, rest in FINAL if name == "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_its_label_has_the_version_of_the_service() -> None:
    [version] = (rest for name, rest in FINAL if name == "ARG" and rest.startswith("VERSION="))
    project = (ROOT / "pyproject.toml").read_text()
    assert f'\nversion = "{version.removeprefix("VERSION=")}"\n' in project


def test_every_copied_file_is_let_through_to_the_build() -> None:
    """.dockerignore is a list of what is let through."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    allowed = {line[1:] for line in lines if line.startswith("!")}
    sources = {source for name, rest in BUILD if name == "COPY" for source in rest.split()[:-1]}
    assert sources == allowed


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Carry out the build stage, and return the virtual environment that it makes."""
    directory = tmp_path_factory.mktemp("image")
    base, build, made = directory / "base", directory / "build", directory / "venv"
    subprocess.run([sys.executable, "-m", "venv", base], check=True)
    build.mkdir()
    for name, rest in BUILD:
        if name == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(ROOT / source, build / target)
        elif name == "RUN":
            done = subprocess.run(
                ["/bin/sh", "-c", rest.replace("/opt/venv", str(made))],
                cwd=build,
                env={"PATH": f"{base / 'bin'}:/usr/bin:/bin", "HOME": str(directory)}
                | {name: value for name, value in os.environ.items() if name.startswith("PIP_")},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(build)
    return made


class TestSteps:
    @pytest.fixture
    def variables(self, environment: Path) -> dict[str, str]:
        """Return the variables of the image."""
        [rest] = (rest for name, rest in FINAL if name == "ENV")
        pairs = dict(pair.split("=", 1) for pair in rest.split())
        path = pairs["PATH"].replace("/opt/venv", str(environment)).replace("$PATH", "/usr/bin")
        return pairs | {"PATH": path, "HOME": "/nonexistent"}

    def test_the_wheel_alone_has_all_that_the_command_needs(
        self, environment: Path, variables: dict[str, str]
    ) -> None:
        run = environment / "bin" / "acceptance-consumer"
        done = subprocess.run(
            [run, "schema", "acceptance-record"],
            env=variables,
            cwd="/",
            capture_output=True,
            check=True,
        )
        assert json.loads(done.stdout)["title"]

    def test_neither_pip_nor_tests_are_in_it(self, environment: Path) -> None:
        packages = {path.name for path in environment.glob("lib/*/site-packages/*")}
        assert {"consumer", "schemas"} <= packages
        assert not packages & {"pip", "setuptools", "hatchling", "pytest", "tests"}

    def test_what_is_locked_is_what_is_installed(self, environment: Path) -> None:
        found = {
            match["name"].lower().replace("_", "-"): match["version"]
            for path in environment.glob("lib/*/site-packages/*.dist-info")
            if (match := re.fullmatch(r"(?P<name>.+)-(?P<version>.+)\.dist-info", path.name))
        }
        locked = re.findall(r"(?m)^([\w-]+)==(\S+)$", (ROOT / "requirements.lock").read_text())
        assert found.pop("acceptance-consumer")
        assert found == dict(locked)

    def test_the_entry_point_writes_nothing_and_ends_on_sigterm(
        self, environment: Path, variables: dict[str, str]
    ) -> None:
        command = [
            word
            for wanted in ("ENTRYPOINT", "CMD")
            for name, rest in FINAL
            if name == wanted
            for word in json.loads(rest)  # The exec form: a shell would keep the signal to itself.
        ]
        before = set(environment.rglob("*"))
        with EmbeddedBroker() as broker:
            broker.create_topics(["in", "acceptance-records", "acceptance-dead-letters"])
            with subprocess.Popen(
                [*read_only_root(), environment / "bin" / command[0], *command[1:]],
                env=variables
                | {
                    "ACCEPTANCE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
                    "ACCEPTANCE_TOPICS": "in",
                    "ACCEPTANCE_DELIVERY": "at_least_once",
                    "ACCEPTANCE_LOG_FORMAT": "json",
                },
                cwd="/",
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                assert process.stderr is not None
                lines = until(process.stderr, "partitions_assigned")
                process.send_signal(signal.SIGTERM)
                lines += process.stderr
                assert process.wait(timeout=30) == 0, "".join(lines)
        assert set(environment.rglob("*")) == before


def read_only_root() -> list[str]:
    """Return what makes the root file system read-only for a command, where that is allowed."""
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


def until(stream: Iterator[str], event: str) -> list[str]:
    """Read log lines up to an event."""
    lines = []
    for line in stream:
        lines.append(line)
        if f'"{event}"' in line:
            return lines
    raise AssertionError("ended with\n" + "".join(lines))
