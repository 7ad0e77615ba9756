"""Probes and metrics over HTTP: `/healthz`, `/readyz`, `/metrics`.

Each connection has a thread, a deadline and one request. The server closes slow connections, which
would block others.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from consumer.telemetry.clock import Clock
from consumer.telemetry.health import Health
from consumer.telemetry.log_events import LogEvent, Logger

OFF: Final = "off"
_DEADLINE_S: Final = 5.0  # Of a connection.
_MAX_CONNECTIONS: Final = 64
_MAX_SCRAPES: Final = 4  # Concurrent scrapes; the server writes one at a time.
_POLL_S: Final = 0.5
_JSON: Final = "application/json"


class AddressError(Exception):
    """The server cannot listen at an address; the message says why."""


@contextmanager
def serving(
    address: str, health: Health, registry: CollectorRegistry, clock: Clock, log: Logger
) -> Iterator[None]:
    """Answer probes and scrapes at an address, in other threads.

    Args:
        address: host and port, or `off`; an IPv6 address is written in brackets.
        health: answers probes.
        registry: the metrics.
        clock: for deadlines.
        log: receives the log lines.

    Raises:
        AddressError: the server cannot listen there.

    """
    if address == OFF:
        yield
        return
    with _listening(address, health, registry, clock) as server:
        log.info(LogEvent.HTTP_SERVER_STARTED, address=_text(server.server_address))
        loop = threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), name="http", daemon=True
        )
        loop.start()
        try:
            yield
        finally:
            server.shutdown()


def _listening(
    address: str, health: Health, registry: CollectorRegistry, clock: Clock
) -> "_Server":
    host, _, port = address.rpartition(":")
    try:
        family, _, _, _, (name, _, *more) = socket.getaddrinfo(
            host.strip("[]"), None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return _Server(family, (name, int(port), *more), health, registry, clock)
    except (OSError, OverflowError, UnicodeError) as error:  # The last: an invalid host name.
        reason = getattr(error, "strerror", None) or error
        raise AddressError(
            f"http_address: cannot listen at {address}: {reason}; choose another address, or off"
        ) from error


def _text(place: Any) -> str:
    host, port = place[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Server(ThreadingTCPServer):
    """Accepts a bounded number of connections."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = _MAX_CONNECTIONS

    def __init__(
        self,
        family: socket.AddressFamily,
        place: Any,
        health: Health,
        registry: CollectorRegistry,
        clock: Clock,
    ) -> None:
        self.address_family = family
        self.health = health
        self.registry = registry
        self._clock = clock
        self.scrapes = threading.BoundedSemaphore(_MAX_SCRAPES)
        self.writing = threading.Lock()  # Rendering metrics competes with the main thread.
        self._deadlines: dict[socket.socket, float] = {}  # In the order of their start.
        self._lock = threading.Lock()
        super().__init__(place, _Handler)

    def get_request(self) -> Any:
        """Accept a connection."""
        try:
            return super().get_request()
        except OSError:
            self._clock.sleep(_POLL_S)  # Without file descriptors the loop would spin.
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a connection; close the oldest one if there are too many."""
        with self._lock:
            if len(self._deadlines) >= _MAX_CONNECTIONS:
                self._cut_off(next(iter(self._deadlines)))
            self._deadlines[request] = self._clock.monotonic() + _DEADLINE_S
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections whose deadline has passed."""
        now = self._clock.monotonic()
        with self._lock:
            for request in [one for one, end in self._deadlines.items() if end <= now]:
                self._cut_off(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect or are cut off."""

    def _cut_off(self, request: socket.socket) -> None:
        """End the wait of a thread, which then closes the connection."""
        del self._deadlines[request]  # Otherwise the next connection would find it again.
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Server
    timeout = _DEADLINE_S

    def do_GET(self) -> None:
        """Answer."""
        health = self.server.health
        try:
            path = urlsplit(self.path).path
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        except (ValueError, TypeError):  # An open bracket; a version without numbers.
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        match path:
            case "/healthz":
                self._probe(health.alive, alive=health.alive, turn_age_seconds=health.turn_age_s)
            case "/readyz":
                reasons = health.reasons()
                self._probe(not reasons, ready=not reasons, reasons=reasons)
            case "/metrics":
                self._metrics(encode, content_type)
            case _:
                self._json(HTTPStatus.NOT_FOUND, paths=["/healthz", "/readyz", "/metrics"])

    do_HEAD = do_GET  # noqa: N815 - the library's own name.

    def _metrics(self, encode: Callable[[CollectorRegistry], bytes], content_type: str) -> None:
        if not self.server.scrapes.acquire(blocking=False):
            self._json(
                HTTPStatus.SERVICE_UNAVAILABLE, error=f"at most {_MAX_SCRAPES} concurrent scrapes"
            )
            return
        try:
            with self.server.writing:
                body = encode(self.server.registry)
        finally:
            self.server.scrapes.release()
        self._answer(HTTPStatus.OK, content_type, body)

    def _probe(self, good: bool, **body: object) -> None:
        self._json(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, **body)

    def _json(self, status: HTTPStatus, **body: object) -> None:
        self._answer(status, _JSON, msgspec.json.encode(body) + b"\n")

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse an invalid request, and methods other than GET and HEAD."""
        del message, explain  # They quote the client's text.
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self.close_connection = True
        self._json(status, error=status.phrase)

    def version_string(self) -> str:
        """Name the server without versions."""
        return "acceptance-consumer"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing per request."""
