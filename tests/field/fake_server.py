"""An HTTP server that answers as LLM engines do, with known numbers."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.request import Request, urlopen

from tests.field.answers import Answer, Answers


class FakeServer:
    """A fake LLM server: the model of a request names the engine to imitate."""

    def __init__(self) -> None:
        self.address = ""
        self.answers = Answers()
        self.log: Callable[[str, Answer], None] = lambda _request_id, _answer: None
        """Called for each answer, with the header `X-Request-ID` of the request."""

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_args: object) -> None:
        """Say nothing of clients that go away."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve HTTP on a free port until the end of the block, and yield the address."""
    http = _QuietServer(("127.0.0.1", 0), handler)
    thread = Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{http.server_address[1]}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def ask(url: str, engine: str, *, streamed: bool = False, **headers: str) -> None:
    """Ask for a chat completion, perhaps through a program in between, and read it to its end."""
    message = {"role": "user", "content": "hello"}
    body = {"model": engine, "messages": [message], "stream": streamed}
    if streamed:
        body["stream_options"] = {"include_usage": True}
    request = Request(  # noqa: S310 - A program of the test.
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", **headers},
    )
    with urlopen(request, timeout=30) as response:  # noqa: S310
        response.read()


@contextmanager
def serve() -> Iterator[FakeServer]:
    """Serve chat completions on a free port until the end of the block."""
    server, lock = FakeServer(), Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(b'{"object":"list","data":[]}', "application/json")

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            request = json.loads(self.rfile.read(size))
            with lock:
                answer = server.answers.give(request["model"], streamed=bool(request.get("stream")))
            server.log(self.headers.get("X-Request-ID") or "", answer)
            if answer.streamed:
                self._stream(answer.body)
            else:
                self._send(answer.body.encode(), answer.content_type)

        def _send(self, body: bytes, content_type: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _stream(self, body: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in body.encode().split(b"\n\n")[:-1]:
                self.wfile.write(b"%x\r\n%b\n\n\r\n" % (len(event) + 2, event))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with serving(Handler) as server.address:
        yield server
