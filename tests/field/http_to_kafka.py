"""A bridge for software that logs by HTTP: it puts each request's body on a topic.

It keeps the content type, and writes CloudEvents attributes as headers of a message, as the Kafka
sink of Knative does in binary mode.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from confluent_kafka import Producer

from tests.field.fake_server import serving
from tests.kafka.harness import Headers


@contextmanager
def bridge(bootstrap: str, topic: str) -> Iterator[str]:
    """Yield the URL of a bridge to a topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers: Headers = [
                (name.lower().replace("ce-", "ce_", 1), value)
                for name, value in self.headers.items()
                if name.lower() == "content-type" or name.lower().startswith("ce-")
            ]
            producer.produce(topic, body, headers=headers)
            producer.flush()
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with serving(Handler) as address:
        yield f"http://{address}"
