"""An HTTP server that answers as LLM engines do, with known numbers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

from tests.field.answers import Answers


class FakeServer:
    """A fake LLM server: the model of a request names the engine to imitate."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answers = Answers()

    @property
    def url(self) -> str:
        return f"http://{self.address}"


@contextmanager
def serve() -> Iterator[FakeServer]:
    """Serve chat completions on a free port until the end of the block."""
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(b'{"object":"list","data":[]}', "application/json")

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            request = json.loads(self.rfile.read(size))
            with lock:
                answer = server.answers.give(request["model"], streamed=bool(request.get("stream")))
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

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server = FakeServer(f"127.0.0.1:{http.server_address[1]}")
    thread = Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
