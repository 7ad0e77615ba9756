"""The script that `helm test` runs inside the cluster, against servers of this test."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tests.chart.chart import CHART, one, rendered, spec

pytestmark = pytest.mark.chart

METRICS = b"# HELP a_total A.\n# TYPE a_total counter\na_total 1.0\n"


@contextmanager
def pod(status: Callable[[str], int], body: bytes = METRICS) -> Iterator[int]:
    """Answer each path with a status, as a pod would, and yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status(self.path))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def check(port: int, seconds: float = 0) -> subprocess.CompletedProcess[str]:
    """Run the command of the rendered pod."""
    cluster, pods = spec(rendered("minimal"), "Pod")["containers"]
    assert cluster["args"] == ["run", "--check"]
    script, host, rendered_port = pods["args"]
    assert script.strip() == (CHART / "files" / "check_release.py").read_text().strip()
    assert host == one(rendered("minimal"), "Service")["metadata"]["name"]
    assert rendered_port == "8080"
    command = [sys.executable, *pods["command"][1:], script, "127.0.0.1", str(port), str(seconds)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_pods_that_are_ready_and_have_metrics_pass() -> None:
    with pod(lambda _: 200) as port:
        done = check(port)
    assert (done.returncode, done.stdout) == (0, "ready: 127.0.0.1\n"), done.stderr


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_a_pod_that_is_not_ready_fails_with_the_reason(path: str) -> None:
    with pod(lambda asked: 503 if asked == path else 200) as port:
        done = check(port)
    assert done.returncode == 1
    assert "not ready: HTTP Error 503" in done.stderr


def test_a_pod_without_metrics_or_without_a_server_fails() -> None:
    with pod(lambda _: 200, b"") as port:
        assert "has no metrics" in check(port).stderr
    assert "Connection refused" in check(port).stderr


def test_the_script_waits_for_a_pod_that_has_just_started() -> None:
    statuses = iter([503])
    with pod(lambda _: next(statuses, 200)) as port:
        assert check(port, seconds=30).returncode == 0
