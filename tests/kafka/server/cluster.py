"""A real Apache Kafka on this machine, started and thrown away by the tests.

Transactions, fencing and rebalances are decided by the broker, so only a broker can show that the
consumer gets them right.  Kafka comes from Maven Central as plain jars; no container is needed.
"""

import atexit
import fcntl
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata, TopicMetadata
from confluent_kafka.cimpl import NewTopic

from tests.paths import ROOT

_POM = Path(__file__).with_name("pom.xml")
_CACHE = ROOT / ".cache" / "kafka"
_HOST = "127.0.0.1"
_START_SECONDS = 90
_STOP_SECONDS = 60
_ADMIN_SECONDS = 30
_DOWNLOAD_SECONDS = 600
_LOG_TAIL_LINES = 40

# Below the ephemeral range: a client that reconnects to a dead broker's ephemeral port can be
# given that very port, connect to itself, and keep the broker from coming back.
_PORTS = range(20_000, 32_000)

# The parallel collector and the optimising compiler pay off after minutes; a test broker lives
# for seconds.
_JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# Standard error, because tests read what the console tools print on standard output.
_LOG4J = """\
rootLogger.level = ${sys:root.level:-WARN}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{ABSOLUTE} %p %c{1} %m%n
"""

# Its standard input ends when the test process does, even by SIGKILL.  The child leaves the group
# so that it survives the kill and can delete the directory; more than once, because a broker that
# is just dying may still write.
_GUARD = """\
import os, shutil, signal, sys, time
sys.stdin.read()
group = os.getpgrp()
if os.fork():
    os.wait()
else:
    os.setpgid(0, 0)
    os.killpg(group, signal.SIGKILL)
    for _ in range(100):
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        if not os.path.exists(sys.argv[1]):
            break
        time.sleep(0.1)
"""


class KafkaUnavailable(Exception):  # noqa: N818 - a fact about the machine, not an error.
    """This machine cannot run Kafka: a program or the jars are missing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class KafkaStartError(RuntimeError):
    """Kafka can run here, but did not reach the state that the caller waits for."""


class KafkaCluster:
    """One or three brokers, each also a controller, with data that lasts until `stop`.

    `config` overrides server properties of every broker. `user` logs in at `guarded_servers` (by
    SASL/PLAIN, with its name as password), and may do there what ACLs allow.
    """

    def __init__(
        self, brokers: int = 1, *, config: dict[str, str] | None = None, user: str | None = None
    ) -> None:
        if brokers not in (1, 3):
            raise ValueError(f"a cluster has 1 or 3 brokers, not {brokers}")
        self._size = brokers
        self._config = dict(config or {})
        self._user = user
        self._brokers: list[_Broker] = []
        self._sandbox: _Sandbox | None = None
        self._java: list[str] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Every broker, dead ones too: clients must find their own way around those."""
        return ",".join(broker.address for broker in self._brokers)

    @property
    def guarded_servers(self) -> str:
        """Every broker, for the user."""
        return ",".join(broker.guarded_address for broker in self._brokers)

    def start(self) -> None:
        """Return when every broker answers and knows all others."""
        if self._sandbox is not None:
            raise RuntimeError("the cluster is already started")
        jars = fetch_jars()
        self._sandbox = _Sandbox()
        atexit.register(self.stop)
        try:
            self._prepare(self._sandbox.directory, jars)
            self._format()
            for broker in self._brokers:
                self._spawn(broker)
            self._wait(self._brokers, "all brokers", lambda seen: len(seen.brokers) == self._size)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill at once, for the data is deleted anyway."""
        atexit.unregister(self.stop)
        if self._sandbox is None:
            return
        self._sandbox.kill()
        for broker in self._brokers:
            broker.reap()
        self._sandbox.delete()
        self._sandbox = None
        self._brokers = []

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int | None = None,
        config: dict[str, str] | None = None,
    ) -> None:
        """Return when every live broker knows a leader for every partition."""
        server_default = -1
        topic = NewTopic(name, partitions, replication or server_default, config=config or {})
        admin = self._admin()
        admin.create_topics([topic])[name].result(_ADMIN_SECONDS)
        self._wait(
            self._live(),
            f"leaders of topic {name}",
            lambda seen: _led_partitions(seen.topics.get(name)) == partitions,
        )

    def delete_topic(self, name: str) -> None:
        """Return when every live broker has forgotten the topic."""
        admin = self._admin()
        admin.delete_topics([name])[name].result(_ADMIN_SECONDS)
        self._wait(self._live(), f"end of topic {name}", lambda seen: name not in seen.topics)

    def kill_broker(self, index: int) -> None:
        """End a broker as a power cut would."""
        self._end(self._brokers[index], signal.SIGKILL)

    def stop_broker(self, index: int) -> None:
        """End a broker as an administrator would: it hands over its partitions first."""
        self._end(self._brokers[index], signal.SIGTERM)

    def start_broker(self, index: int, *, wait: bool = True) -> None:
        """Start an ended broker with the data and the port it had.

        Without a majority of controllers no broker becomes ready; pass `wait=False` for all but
        the last one when bringing a whole cluster back.
        """
        broker = self._brokers[index]
        if broker.is_alive:
            raise RuntimeError(f"broker {index} is already running")
        self._spawn(broker)
        if wait:
            self._wait(self._live(), f"broker {index}", lambda seen: index in seen.brokers)

    def console(
        self,
        tool: str,
        *args: str,
        input: bytes | None = None,  # noqa: A002 - The name that subprocess.run uses.
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the command line tool with main class `tool`, as an administrator would."""
        return subprocess.run(
            [*self._java, tool, *args],
            input=b"" if input is None else input,
            capture_output=True,
            timeout=timeout,
            check=False,
            process_group=self._running().group,
        )

    def _prepare(self, directory: Path, jars: Path) -> None:
        log4j = directory / "log4j2.properties"
        log4j.write_text(_LOG4J)
        self._java = ["java", *_JVM, f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{jars}/*"]
        ports = iter(_free_ports(3 * self._size))
        self._brokers = [
            _Broker(index, directory / f"broker-{index}", next(ports), next(ports), next(ports))
            for index in range(self._size)
        ]
        for broker in self._brokers:
            broker.directory.mkdir()
            properties = self._properties(broker)
            broker.properties.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))

    def _properties(self, broker: "_Broker") -> dict[str, str]:
        in_sync = str(max(1, self._size - 1))
        voters = ",".join(f"{b.index}@{_HOST}:{b.controller_port}" for b in self._brokers)
        return {
            "process.roles": "broker,controller",
            "node.id": str(broker.index),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{broker.address},"
            f"CONTROLLER://{_HOST}:{broker.controller_port}",
            "log.dirs": str(broker.directory / "data"),
            "auto.create.topics.enable": "false",
            "default.replication.factor": str(self._size),
            "min.insync.replicas": in_sync,
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": str(self._size),
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": str(self._size),
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.num.partitions": "3",
            "share.coordinator.state.topic.replication.factor": str(self._size),
            "share.coordinator.state.topic.min.isr": in_sync,
            # Less waiting: for members that never come, dead brokers and abandoned transactions.
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.min.heartbeat.interval.ms": "300",
            "group.consumer.heartbeat.interval.ms": "300",
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "4000",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "log.retention.ms": "-1",  # Tests send messages with old timestamps.
            # The default buffer takes a quarter of the heap.
            "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
            **({} if self._user is None else self._guard(broker, self._user)),
            **self._config,
        }

    def _guard(self, broker: "_Broker", user: str) -> dict[str, str]:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        login = f'{module} required user_{user}="{user}";'
        return {
            "listeners": f"PLAINTEXT://{broker.address},GUARDED://{broker.guarded_address},"
            f"CONTROLLER://{_HOST}:{broker.controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": login,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    def _format(self) -> None:
        """Write the empty metadata log, with the newest features as a new cluster would have."""
        cluster_id = "acceptanceconsumertest"
        tools = [
            (broker, broker.run(self._format_command(broker, cluster_id), self._running().group))
            for broker in self._brokers
        ]
        for broker, tool in tools:
            if tool.wait(_START_SECONDS):
                raise KafkaStartError(f"cannot format broker {broker.index}\n{broker.log_tail()}")

    def _format_command(self, broker: "_Broker", cluster_id: str) -> list[str]:
        tool = "kafka.tools.StorageTool"
        return [*self._java, tool, "format", "-t", cluster_id, "-c", str(broker.properties)]

    def _spawn(self, broker: "_Broker") -> None:
        command = [*self._java, "-Droot.level=INFO", "kafka.Kafka", str(broker.properties)]
        broker.process = broker.run(command, self._running().group)

    def _end(self, broker: "_Broker", number: signal.Signals) -> None:
        if broker.process is None or not broker.is_alive:
            raise RuntimeError(f"broker {broker.index} is not running")
        broker.process.send_signal(number)
        broker.process.wait(_STOP_SECONDS)

    def _wait(
        self,
        brokers: Iterable["_Broker"],
        what: str,
        reached: Callable[[ClusterMetadata], bool],
    ) -> None:
        """Ask each broker by itself: metadata reaches the brokers one after the other."""
        deadline = time.monotonic() + _START_SECONDS
        for broker in brokers:
            while (seen := broker.metadata()) is None or not reached(seen):
                if not broker.is_alive:
                    raise KafkaStartError(f"broker {broker.index} died\n{broker.log_tail()}")
                if time.monotonic() > deadline:
                    raise KafkaStartError(
                        f"broker {broker.index} does not show {what} after {_START_SECONDS} s\n"
                        f"{broker.log_tail()}"
                    )
                time.sleep(0.02)

    def _live(self) -> list["_Broker"]:
        return [broker for broker in self._brokers if broker.is_alive]

    def _admin(self) -> AdminClient:
        return _quiet_admin(",".join(broker.address for broker in self._live()))

    def _running(self) -> "_Sandbox":
        if self._sandbox is None:
            raise RuntimeError("the cluster is not started")
        return self._sandbox


@dataclass
class _Broker:
    index: int
    directory: Path
    port: int
    controller_port: int
    guarded_port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{_HOST}:{self.port}"

    @property
    def guarded_address(self) -> str:
        return f"{_HOST}:{self.guarded_port}"

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def run(self, command: list[str], group: int) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=group,
            )

    def reap(self) -> None:
        if self.process is not None:
            self.process.wait()

    def metadata(self) -> ClusterMetadata | None:
        """Answer what this broker sees; a new client has no other broker to ask."""
        try:
            return _quiet_admin(self.address).list_topics(timeout=1)
        except KafkaException:
            return None

    def log_tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_TAIL_LINES:])

    @property
    def _log(self) -> Path:
        return self.directory / "broker.log"


class _Sandbox:
    """A directory and a process group that vanish with this process, however it ends."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="kafka-"))
        self._guard = subprocess.Popen(
            [sys.executable, "-IS", "-c", _GUARD, str(self.directory)],
            stdin=subprocess.PIPE,
            process_group=0,
        )
        self.group = self._guard.pid

    def kill(self) -> None:
        os.killpg(self.group, signal.SIGKILL)
        self._guard.communicate()

    def delete(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def fetch_jars() -> Path:
    """Return the directory of Kafka's jars, filled by Maven the first time.

    One process at a time, because Maven's local repository bears no two writers; and by rename,
    because a download that was interrupted must not look complete.
    """
    _require("java")
    version = _kafka_version()
    jars = _CACHE / version
    if jars.is_dir():
        return jars
    _require("mvn")
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            _download(jars)
    return jars


def _download(jars: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="partial-", dir=_CACHE) as partial:
        arrived = Path(partial) / "jars"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={arrived}"]
        forget_failures = "-U"
        command = ["mvn", "-q", "-B", forget_failures, "-f", str(_POM), *goal]
        try:
            maven = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_DOWNLOAD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise KafkaUnavailable(f"Maven fetched no jars in {error.timeout} s") from error
        if maven.returncode:
            output = maven.stdout.decode(errors="replace")
            raise KafkaUnavailable(f"Maven cannot fetch Kafka's jars: {_first_error(output)}")
        arrived.rename(jars)


def _first_error(maven_output: str) -> str:
    """Return the cause, without the advice and the links that Maven prints below it."""
    match = re.search(r"\[ERROR\] (.+)", maven_output)
    return match[1] if match else maven_output.strip()


def _kafka_version() -> str:
    match = re.search(r"<kafka\.version>(.+)</kafka\.version>", _POM.read_text())
    if match is None:
        raise ValueError("the pom.xml names no kafka.version")
    return match[1]


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise KafkaUnavailable(f"no program `{program}` on the PATH")


def _free_ports(count: int) -> list[int]:
    """Draw from the system's randomness: test runners seed Python's alike in every process."""
    candidates = random.SystemRandom().sample(_PORTS, len(_PORTS))
    free = (port for port in candidates if _is_free(port))
    return [next(free) for _ in range(count)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True


def _led_partitions(topic: TopicMetadata | None) -> int:
    if topic is None:
        return 0
    return sum(partition.leader >= 0 for partition in topic.partitions.values())


def _quiet_admin(addresses: str) -> AdminClient:
    """Return a client that does not log about brokers that are still starting."""
    return AdminClient(
        {
            "bootstrap.servers": addresses,
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
        }
    )
