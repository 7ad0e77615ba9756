"""Log answers with SGLang's own loggers, and send the lines as a shipper would.

Arguments: bootstrap servers, topic, the directory with SGLang's Python source, the logger
(`request_log` or `metrics_file`), and a directory for the logs.
"""

import asyncio
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from confluent_kafka import Producer
from stand_ins import import_only

bootstrap, topic, source, mode, directory = sys.argv[1:]
import_only(
    source,
    "sglang",
    "sglang.srt.constants",
    "sglang.srt.environ",
    "sglang.srt.observability.request_metrics_exporter",
    "sglang.srt.sampling.watermarking.core",
    "sglang.srt.utils.log_utils",
    "sglang.srt.utils.request_logger",
)


@dataclass
class Request:
    """What the loggers read of a request."""

    rid: str
    text: str = "hello"
    input_ids: list[int] | None = None
    sampling_params: dict[str, int] = field(default_factory=lambda: {"max_new_tokens": 99})
    stream: bool = False


answers = [json.loads(line) for line in sys.stdin]
if mode == "request_log":
    from sglang.srt.utils.request_logger import RequestLogger

    logger = RequestLogger(True, 2, "json", [directory])
    for answer in answers:
        request = Request(answer["meta_info"]["id"])
        logger.log_received_request(request)
        logger.log_finished_request(request, answer)
else:
    from sglang.srt.observability.request_metrics_exporter import FileRequestMetricsExporter

    arguments = SimpleNamespace(export_metrics_to_file_dir=directory)
    exporter = FileRequestMetricsExporter(arguments, None, None)

    async def export() -> None:
        for answer in answers:
            await exporter.write_record(Request(answer["meta_info"]["id"]), answer)

    asyncio.run(export())

producer = Producer({"bootstrap.servers": bootstrap})
for log in sorted(Path(directory).glob("*.log")):
    for line in log.read_text(encoding="utf-8").split("\n")[:-1]:
        producer.produce(topic, line.encode())
producer.flush()
