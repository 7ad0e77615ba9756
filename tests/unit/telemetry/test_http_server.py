"""Probes over HTTP: what is answered, where, and who cannot hold it up."""

import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry, Counter

from consumer.telemetry import http_server
from consumer.telemetry.client_statistics import BrokerStatistics, ClientStatistics
from consumer.telemetry.clock import SystemClock
from consumer.telemetry.health import Health
from consumer.telemetry.http_server import AddressError, serving
from consumer.telemetry.log_events import LogEvent
from consumer.telemetry.stop import Stop
from tests.unit.kafka.fakes import Log

Answer = tuple[int, str, bytes]


class Served:
    """A server, and what a probe asks of it."""

    def __init__(self, health: Health, stop: Stop, host: str, port: int) -> None:
        self.health, self.stop, self.place = health, stop, (host, port)

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = HTTPConnection(*self.place, timeout=10)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.headers["Content-Type"], response.read()
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.place, timeout=10)


@contextmanager
def served(address: str = "127.0.0.1:0") -> Iterator[Served]:
    clock, log, stop, registry = SystemClock(), Log(), Stop(), CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc(7)
    health = Health(stop, 20.0, clock, log)
    with serving(address, health, registry, clock, log):
        [line] = log.of(LogEvent.HTTP_SERVER_STARTED)
        host, _, port = str(line["address"]).rpartition(":")
        yield Served(health, stop, host.strip("[]"), int(port))


def _parts(connection: socket.socket) -> Iterator[bytes]:
    """Return what still comes, until the connection is closed or reset."""
    with suppress(ConnectionResetError):
        yield from iter(lambda: connection.recv(1 << 20), b"")


def _is_refused(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


# What is answered


def test_a_process_that_turns_is_alive_and_one_that_hangs_is_not() -> None:
    with served() as server:
        status, kind, body = server.ask("/healthz")
        assert (status, kind) == (200, "application/json")
        assert json.loads(body) == {"alive": True, "turn_age_seconds": 0.0}
        for _ in range(100):
            server.health.sample()
        status, _, body = server.ask("/healthz")
        assert (status, json.loads(body)) == (503, {"alive": False, "turn_age_seconds": 100.0})


def test_readiness_comes_with_its_reasons() -> None:
    with served() as server:
        server.health.set_membership(member=True, partitions=1)
        status, kind, body = server.ask("/readyz?verbose")
        assert (status, kind) == (503, "application/json")
        assert json.loads(body) == {"ready": False, "reasons": ["no broker has answered yet"]}
        brokers = {"b": BrokerStatistics(state="UP", rxidle=5)}
        server.health.add_statistics(ClientStatistics("consumer", brokers=brokers))
        status, _, body = server.ask("/readyz")
        assert (status, json.loads(body)) == (200, {"ready": True, "reasons": []})


@pytest.mark.parametrize(
    ("accept", "kind", "end"),
    [("*/*", "text/plain", b""), ("application/openmetrics-text", "openmetrics-text", b"# EOF\n")],
)
def test_metrics_are_in_the_form_that_is_asked_for(accept: str, kind: str, end: bytes) -> None:
    with served() as server:
        status, content_type, body = server.ask("/metrics", Accept=accept)
        assert status == 200
        assert kind in content_type
        assert b"\nthings_total 7.0\n" in body
        assert body.endswith(end)


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
def test_head_is_answered_without_a_body(path: str) -> None:
    with served() as server, server.connect() as connection:
        connection.sendall(f"HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = b"".join(_parts(connection))
        assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\n")
        assert answer.count(b"\r\n\r\n") == 1


@pytest.mark.parametrize("path", ["/", "/health", "/metrics/", "/healthz/x", "/%2e"])
def test_other_paths_are_not_found(path: str) -> None:
    with served() as server:
        assert server.ask(path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_not_allowed(method: str) -> None:
    with served() as server:
        assert server.ask("/healthz", method)[0] == 405


@pytest.mark.parametrize(
    "rubbish",
    [b"\x16\x03\x01\x00\xa5\r\n", b"GET\r\n\r\n", b"canary\r\n", b"G" * 100_000, b"\r\n"],
)
def test_rubbish_ends_its_own_connection_and_is_not_quoted(
    rubbish: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with served() as server:
        with server.connect() as connection:
            connection.sendall(rubbish)
            assert b"canary" not in b"".join(_parts(connection))
        assert server.ask("/healthz")[0] == 200
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        ("http://[", "*/*"),
        ("/metrics", "application/openmetrics-text; version=x"),
        ("/metrics", "text/plain; version=1.0.x"),
    ],
)
def test_what_cannot_be_read_is_answered_as_a_bad_request(path: str, accept: str) -> None:
    with served() as server, server.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode())
        assert b"".join(_parts(connection)).startswith(b"HTTP/1.0 400 Bad Request\r\n")


# Slow clients


def test_a_client_that_sends_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_DEADLINE_S", 1.0)
    began = time.monotonic()
    with served() as server, server.connect() as slow:
        connection_is_open = True
        while connection_is_open and time.monotonic() - began < 10:
            try:
                slow.sendall(b"G")
                slow.settimeout(0.1)
                connection_is_open = slow.recv(1) != b""
            except TimeoutError:
                continue
            except OSError:
                connection_is_open = False
        assert not connection_is_open
        assert time.monotonic() - began >= 1


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server disconnect no slow client, within the time of a test."""
    monkeypatch.setattr(http_server, "_DEADLINE_S", 60.0)
    monkeypatch.setattr(http_server._Handler, "timeout", 60.0)


@pytest.mark.usefixtures("patient")
def test_clients_that_send_nothing_hold_up_no_other_client() -> None:
    with served() as server:
        slow = [server.connect() for _ in range(200)]
        try:
            for _ in range(20):
                assert server.ask("/healthz")[0] == 200
        finally:
            for one in slow:
                one.close()


@pytest.mark.usefixtures("patient")
def test_each_client_beyond_the_most_takes_the_place_of_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where a thread takes its time to notice that its connection was cut off."""
    over = threading.Event()
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 2)
    monkeypatch.setattr(http_server._Handler, "handle", lambda _handler: over.wait())
    with served() as server:
        clients = [server.connect() for _ in range(4)]
        assert [client.recv(1) for client in clients[:2]] == [b"", b""]
        clients[2].settimeout(1)
        with pytest.raises(TimeoutError):
            clients[2].recv(1)
        over.set()
        for client in clients:
            client.close()


@pytest.mark.usefixtures("patient")
def test_many_scrapes_at_once_are_written_one_by_one_and_too_many_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each thread that writes metrics takes time from the main loop."""
    over = threading.Event()
    writing: list[int] = []
    most: list[int] = []

    def encode(_registry: CollectorRegistry) -> bytes:
        writing.append(1)
        most.append(len(writing))
        over.wait(10)
        writing.pop()
        return b""

    monkeypatch.setattr(http_server, "choose_encoder", lambda _accept: (encode, "text/plain"))
    with served() as server, ThreadPoolExecutor(5) as pool:
        scrapes = [pool.submit(server.ask, "/metrics") for _ in range(5)]
        [refused] = wait(scrapes, timeout=10, return_when=FIRST_COMPLETED).done
        assert refused.result()[0] == 503
        assert server.ask("/healthz")[0] == 200
        over.set()
        assert sorted(one.result()[0] for one in scrapes) == [200, 200, 200, 200, 503]
    assert set(most) == {1}


def test_without_file_descriptors_the_loop_rests() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with served() as server, socket.socket() as client:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            client.connect(server.place)
            client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            began = time.process_time()
            time.sleep(1)
            used = time.process_time() - began
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert used < 0.3
        assert client.recv(12) == b"HTTP/1.0 200"


def test_a_client_that_does_not_read_holds_up_no_other_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_DEADLINE_S", 1.0)
    monkeypatch.setattr(
        http_server, "choose_encoder", lambda _accept: (lambda _registry: b"x" * (64 << 20), "t")
    )
    cut = threading.Event()
    cut_off = http_server._Server._cut_off

    def cutting(server: http_server._Server, request: socket.socket) -> None:
        cut_off(server, request)
        cut.set()

    monkeypatch.setattr(http_server._Server, "_cut_off", cutting)
    with served() as server, server.connect() as lazy:
        lazy.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert lazy.recv(1) == b"H"
        monkeypatch.setattr(http_server, "_DEADLINE_S", 60.0)  # For the clients after it.
        assert server.ask("/healthz")[0] == 200
        assert cut.wait(10)
        assert sum(map(len, _parts(lazy))) < 64 << 20


def test_threads_of_connections_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_DEADLINE_S", 0.5)
    with served() as server:
        slow = [server.connect() for _ in range(20)]
        ended = [one.recv(1) for one in slow]
        for one in slow:
            one.close()
        assert ended == [b""] * 20


# Where


def test_it_may_be_off() -> None:
    clock, log = SystemClock(), Log()
    with serving("off", Health(Stop(), 1.0, clock, log), CollectorRegistry(), clock, log):
        assert log.lines == []


@pytest.mark.parametrize("address", ["localhost:0", "0.0.0.0:0"])
def test_it_listens_at_the_given_address(address: str) -> None:
    with served(address) as server:
        assert server.ask("/healthz")[0] == 200


def test_it_listens_on_ipv6_and_takes_ipv4_there_as_well() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with served("[::]:0") as server:
        assert server.ask("/healthz")[0] == 200
        server.place = ("127.0.0.1", server.place[1])
        assert server.ask("/healthz")[0] == 200


def test_no_server_listens_after_the_end() -> None:
    with served() as server:
        place = server.place
    assert _is_refused(place)


def test_a_port_in_use_is_refused_with_the_address() -> None:
    with served() as server:
        address = f"127.0.0.1:{server.place[1]}"
        with (
            pytest.raises(AddressError, match=f"{address}: Address already in use"),
            served(address),
        ):
            pass


@pytest.mark.parametrize(
    "address",
    ["no-such-host.invalid:0", "127.0.0.1:99999", "203.0.113.9:0", "a..b:0", f"{'x' * 64}:0"],
)
def test_an_address_that_is_none_of_this_host_is_refused(address: str) -> None:
    with pytest.raises(AddressError, match=address), served(address):
        pass
